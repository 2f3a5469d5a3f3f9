import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { forkLinked } from '../../../engine/protocol/linked-child.js';

const ECHO = fileURLToPath(new URL('../../support/link-echo.js', import.meta.url));
const IGNORED = { message: () => undefined, closed: () => undefined };

t.test('a child has the given environment, as it reports over its link', async (t) => {
  const echoed = new Promise<unknown>((message) => {
    const forked = forkLinked(
      process.execPath,
      [ECHO],
      { stderr: 'inherit', environment: process.env },
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
