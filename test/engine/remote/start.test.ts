import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import type { ServedModel } from '../../../engine/protocol/inspect-messages.js';
import type { RemoteSetup } from '../../../engine/protocol/setup.js';
import { checkRemote, startRemote } from '../../../engine/remote/start.js';
import { embeddedParts } from '../../support/embedded-parts.js';
import { freePort } from '../../support/free-port.js';
import { KINDS } from '../../support/misbehaviours.js';
import { embeddedTestModel } from '../../support/models.js';
import { ServerStub } from '../../support/server-stub.js';

const model: ServedModel = { file: await embeddedTestModel(), kind: 'chat', seats: 2, contextPerSeat: 64 };

function remote(kind: RemoteSetup['kind'], url: string): RemoteSetup {
  return { kind, url, cancelWaitMs: 1000, silentMs: 1000, tokenMs: 1000 };
}

t.test('a server of another kind is reported as that, and is not waited for', async (t) => {
  for (const kind of KINDS) {
    const { url } = await ServerStub.start(t, kind);
    for (const asked of KINDS) {
      if (asked === kind) continue;
      const found = checkRemote(model, remote(asked, url));
      const why = new RegExp(
        `^the external server at ${url}: its /\\w+ is answered with 404: is it of engine.kind ${asked}\\?$`,
      );
      await t.rejects(found, { message: why, mayMend: true }, `${asked} is expected, and it is ${kind}`);
    }
  }
});

t.test('a server that answers anything with a page is no server of a model', async (t) => {
  const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<html>'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (const kind of KINDS) await t.rejects(checkRemote(model, remote(kind, url)), /with text that is not JSON/);
});

t.test('while a server is awaited the reason is reported at once and once a minute', async (t) => {
  const port = await freePort();
  let now = 0;
  const clock = {
    now: () => now,
    after: (ms: number, then: () => void) => {
      now += ms;
      const soon = setImmediate(then);
      return () => clearImmediate(soon);
    },
  };
  const reported: { reason: string; at: number }[] = [];
  const url = `http://127.0.0.1:${port}`;
  const started = startRemote(model, remote('vllm', url), clock, (reason) => {
    reported.push({ reason, at: now });
    if (reported.length === 3) {
      void ServerStub.start(t, 'vllm', { port }).then(async (stub) => stub.hosts(await embeddedParts()));
    }
  });
  await started.catch((error: unknown) => error);
  const reason = `the external server at ${url}: it refuses connections (ECONNREFUSED): no process listens there`;
  t.strictSame(
    reported.slice(0, 3),
    [0, 60_000, 120_000].map((at) => ({ reason, at })),
  );
});
