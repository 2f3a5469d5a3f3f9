import { join } from 'node:path';
import t from 'tap';
import { externalChecks } from '../../../sidecar/commands/external-check.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { embeddedParts } from '../../support/embedded-parts.js';
import { freePort } from '../../support/free-port.js';
import { embeddedTestModel } from '../../support/models.js';
import { ServerStub } from '../../support/server-stub.js';

async function check(model: object, engine: object): Promise<readonly object[]> {
  const models = [
    { id: 'chat', kind: 'chat', file: await embeddedTestModel(), engine: { kind: 'vllm', ...engine }, ...model },
  ];
  const loaded = loadConfig({ RA_MODELS: JSON.stringify(models) });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const [only] = loaded.config.models;
  if (only === undefined) throw new Error('no model');
  return await externalChecks(only, { clock: systemClock });
}

t.test('the files of this host for a model that is computed elsewhere', async (t) => {
  const dir = t.testdir({ empty: '\n' });
  const files = (model: object, engine: object = {}): Promise<readonly object[]> =>
    check(model, { url: 'http://127.0.0.1:8000', ...engine });
  const fails = (says: RegExp): object => [{ level: 'fail', says }];
  t.match(await files({ file: join(dir, 'none.gguf') }), fails(/none\.gguf cannot be read \(ENOENT\)/));
  t.match(await files({ chatTemplate: join(dir, 'none.jinja') }), fails(/chatTemplate cannot be read/));
  t.match(await files({}, { secretFile: join(dir, 'none') }), fails(/none cannot be read \(ENOENT\)/));
  t.match(await files({}, { secretFile: join(dir, 'empty') }), fails(/empty has no key in its first line/));
});

t.test('each server is asked, and the answer of one that cannot serve the model is shown', async (t) => {
  const stub = await ServerStub.start(t, 'llama-server');
  stub.hosts(await embeddedParts());
  stub.slots = 4;
  const refused = `http://127.0.0.1:${await freePort()}`;
  const [well, wrong, lazy] = await Promise.all([
    check({ seats: 4, contextPerSeat: 4096 }, { kind: 'llama-server', url: stub.url }),
    check({}, { url: [stub.url, refused] }),
    check({ load: 'lazy' }, { url: refused }),
  ]);
  t.match(well, [
    { level: 'ok', says: `computed by llama-server at ${stub.url}, whose prompts are equal to the sidecar’s` },
    {
      level: 'warn',
      says: /it has 4 slots of 4096 tokens, as .* without -np, .* -np 4 -c 16384, .* engine.tokens to 16384/,
    },
  ]);
  t.match(wrong, [
    {
      level: 'fail',
      says: `the external server at ${stub.url}: its /version is answered with 404: is it of engine.kind vllm?`,
    },
    {
      level: 'fail',
      says: `the external server at ${refused}: it refuses connections (ECONNREFUSED): no process listens there`,
    },
  ]);
  t.match(lazy, [{ level: 'warn', says: /ECONNREFUSED/, advice: /correct the engine settings/ }]);
});
