import t from 'tap';
import { exitReason, StderrTail } from '../../../sidecar/engine-client/exit-reason.js';

t.test('a signal, or none, is one word', async (t) => {
  t.equal(exitReason(null), 'exited');
  t.equal(exitReason('SIGABRT'), 'aborted');
  t.equal(exitReason('SIGSEGV'), 'crashed');
  t.equal(exitReason('SIGBUS'), 'crashed');
  t.equal(exitReason('SIGKILL'), 'killed');
  t.equal(exitReason('SIGTERM'), 'killed');
});

t.test('stderr is only searched, across chunks, and its beginning is forgotten', async (t) => {
  const tail = new StderrTail();
  t.equal(tail.hint, undefined);
  tail.add('FATAL ERROR: JavaScript heap ');
  tail.add('out of memory');
  t.equal(tail.hint, 'heap-exhausted');
  tail.add('x'.repeat(10_000));
  t.equal(tail.hint, undefined);
  tail.add('ggml_cuda: CUDA error: device lost');
  t.equal(tail.hint, 'device-error');
});
