import t from 'tap';
import { StartGate } from '../../../sidecar/engine-client/start-gate.js';

t.test('one at a time, in the order they came', (t) => {
  const gate = new StartGate();
  const begun: string[] = [];
  const [a, b, c] = ['a', 'b', 'c'].map((name) => gate.enter(() => void begun.push(name)));
  t.same(begun, ['a'], 'the first need not wait');
  b?.();
  t.same(begun, ['a'], 'who leaves the line lets nobody in');
  a?.();
  t.same(begun, ['a', 'c']);
  a?.();
  b?.();
  const d = gate.enter(() => void begun.push('d'));
  t.same(begun, ['a', 'c'], 'leaving again frees nothing');
  c?.();
  t.same(begun, ['a', 'c', 'd']);
  d();
  gate.enter(() => void begun.push('e'));
  t.same(begun, ['a', 'c', 'd', 'e'], 'an empty gate is open');
  t.end();
});
