/** Image parts: part of the contract, refused by models without vision, and never fetched. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { errorOf, holdError } from '../support/error-answer.js';
import { chatBody, InProcess } from '../support/in-process.js';

const BAD_REQUEST = { status: 400, type: 'invalid_request_error', code: 'bad_request', retry: false } as const;

t.test('images', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'chat', kind: 'chat' }] });
  let callers = 0;
  const host = createServer((socket) => {
    callers += 1;
    socket.destroy();
  }).listen(0, '127.0.0.1');
  t.teardown(() => void host.close());
  await once(host, 'listening');
  const { port } = host.address() as AddressInfo;
  const at = `127.0.0.1:${port}`;

  for (const url of [`https://user:password@${at}/a.png?b=c#d`, `data:image/png;base64,${'A'.repeat(50_000)}`]) {
    for (const stream of [false, true]) {
      const image = { type: 'image_url', image_url: { url } };
      const messages = [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, image, image] }];
      const answer = await sidecar.post('/v1/chat/completions', chatBody('chat', 'echo', { messages, stream }));
      const name = `${url.slice(0, 40)}, ${stream ? 'streamed' : 'whole'}`;
      holdError(t, name, answer, { ...BAD_REQUEST, param: 'messages[0].content[1].image_url' });
      const says = /^messages\[0\]\.content\[1\]\.image_url is an image, and this model has no vision\./;
      t.match(errorOf(answer).message, says, name);
    }
  }
  t.equal(callers, 0, 'the image’s host got no request');
  const ourselves = connect(port, '127.0.0.1');
  await once(ourselves, 'close');
  t.equal(callers, 1, 'which the test would have noticed');
});

t.test('a model whose projector is none', async (t) => {
  // The file exists but is no projector.
  const vision = { projector: fileURLToPath(import.meta.url) };
  const sidecar = await InProcess.start(t, { models: [{ id: 'chat', kind: 'chat', vision }] });
  const { reason } = (await sidecar.seen('vision cannot serve its model')) as { reason?: string };
  const url = 'data:image/png;base64,iVBORw0KGgo=';
  const content = [{ type: 'image_url', image_url: { url } }];
  const answer = await sidecar.post(
    '/v1/chat/completions',
    chatBody('chat', 'echo', { messages: [{ role: 'user', content }] }),
  );
  t.match(reason, /^the projector/);
  holdError(t, 'no projector', answer, { ...BAD_REQUEST, param: 'messages[0].content[0].image_url' });
  t.equal((await sidecar.post('/v1/chat/completions', chatBody('chat', 'echo'))).status, 200, 'text is served');
});
