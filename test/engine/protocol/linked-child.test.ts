import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { childEnvironment } from '../../../sidecar/config/config.js';
import { EngineChild } from '../../../sidecar/engine-client/child.js';
import { forkLinked } from '../../../engine/protocol/linked-child.js';
import { start } from '../../support/engine-messages.js';

const ECHO = fileURLToPath(new URL('../../support/link-echo.js', import.meta.url));
const IGNORED = { message: () => undefined, closed: () => undefined };

t.test('a child has the given environment, as it reports over its link', async (t) => {
  const echoed = new Promise<unknown>((message) => {
    const forked = forkLinked(
      process.execPath,
      [ECHO],
      { stderr: 'inherit', environment: childEnvironment() },
      { ...IGNORED, message },
    );
    if (forked.kind === 'failed') throw new Error('it could not be forked');
    t.teardown(() => forked.child.kill('SIGKILL'));
    forked.link.send({ hello: 1 });
  });
  t.strictSame(await echoed, { hello: 1 });

  const environment = { RA_LINKED: 'yes' };
  const forked = forkLinked('/bin/sh', ['-c', 'test "$RA_LINKED" = yes'], { stderr: 'inherit', environment }, IGNORED);
  t.strictSame(forked.kind === 'forked' && (await once(forked.child, 'exit')), [0, null]);
});

t.test('a fork that fails is a result, with the code', async (t) => {
  const forked = forkLinked('/nowhere/node', [], { stderr: 'inherit', environment: {} }, IGNORED);
  t.equal(forked.kind === 'failed' && (await forked.code), 'ENOENT');
  const thrown = forkLinked('/bin/true', ['\0'], { stderr: 'inherit', environment: {} }, IGNORED);
  t.equal(thrown.kind === 'failed' && (await thrown.code), 'ERR_INVALID_ARG_VALUE');
});

t.test('an engine has its own variables, and this process’s stay unchanged', async (t) => {
  const before = { ...process.env };
  const message = start('/nowhere.gguf');
  if (message.kind !== 'start') throw new Error('no setup');
  const child = new EngineChild(
    { entry: ECHO, setup: message.setup, timing: { startTimeoutMs: 60_000, hangMs: 60_000 }, clock: systemClock },
    {
      ready: () => undefined,
      ended: () => undefined,
      capacity: { seats: () => undefined, unconfirmed: () => undefined },
      serverProblem: () => undefined,
      threw: () => undefined,
      failed: () => undefined,
    },
  );
  t.strictSame({ ...process.env }, before);
  await child.close(0);
  t.strictSame(childEnvironment({ A: '2' }, { A: '1', B: '1' }), { A: '2', B: '1' });
  const homeless = (): never => {
    throw new Error('uv_os_homedir returned ENOENT');
  };
  t.strictSame(childEnvironment({ A: '2' }, { A: '1' }, homeless), { A: '2', HOME: '/nonexistent' });
});
