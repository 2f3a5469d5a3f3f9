import t from 'tap';
import { asFault, EngineFault, faultReason } from '../../../engine/scheduler/faults.js';

t.test('the text of a fault: our own, ours for known ones of llama.cpp, else the class’s name', async (t) => {
  t.equal(faultReason(new EngineFault('the sequence was not copied')), 'the sequence was not copied');
  t.equal(faultReason(new Error('could not find a KV slot for the batch (try …)')), 'no room left in the KV cache');
  t.equal(faultReason(new Error('Eval has failed')), 'llama.cpp could not decode');
  // As JSON.parse does.
  t.equal(faultReason(new SyntaxError('Unexpected token in "a secret"')), 'SyntaxError');
  t.equal(faultReason(new Error('a secret')), 'Error');
  t.equal(faultReason('a secret'), 'unknown');
  t.same(asFault(new TypeError('a secret')), { kind: 'fault', reason: 'TypeError' });
});
