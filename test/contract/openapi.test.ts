/** The published OpenAPI document, as raw HTTP, against the server that publishes it. */
import t from 'tap';
import { openApiDocument } from '../../sidecar/api/openapi/openapi.js';
import { referencesOf } from '../../sidecar/api/public-routes.js';
import { InProcess } from '../support/in-process.js';

const STRICT = referencesOf({ contract: 'strict', batch: false });

t.test('GET /v1/openapi.json', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'chat', kind: 'chat' }] });
  const connection = await sidecar.connect();

  const response = await connection.request('GET', '/v1/openapi.json').response();
  t.equal(response.status, 200, 'without a key');
  t.equal(response.field('content-type'), 'application/json');
  t.equal(response.body, JSON.stringify(openApiDocument(STRICT)));

  for (const { path, method } of STRICT) {
    // Its answer ends its connection.
    const options = await sidecar.ask('OPTIONS', path, {});
    t.equal(options.status, 204, path);
    const allowed = options.field('allow')?.split(', ');
    const expected = method === 'get' ? ['GET', 'HEAD', 'OPTIONS'] : ['POST', 'OPTIONS'];
    t.strictSame(allowed, expected, `${path} accepts what is described and nothing else`);
  }
  for (const { path, method, key } of STRICT) {
    const { status } = await connection.request(method.toUpperCase(), path).response();
    t.equal(status === 401, key, `${path} ${key ? 'asks' : 'does not ask'} for a key`);
  }
});
