import t from 'tap';
import { StartGate } from '../../../sidecar/engine-client/start-gate.js';

t.test('one at a time, in the order of arrival', (t) => {
  const gate = new StartGate();
  const begun: string[] = [];
  const [a, b, c] = ['a', 'b', 'c'].map((name) => gate.enter(() => void begun.push(name)));
  t.same(begun, ['a'], 'the first need not wait');
  b?.();
  t.same(begun, ['a'], 'one that leaves while it waits admits none');
  a?.();
  t.same(begun, ['a', 'c']);
  a?.();
  b?.();
  const d = gate.enter(() => void begun.push('d'));
  t.same(begun, ['a', 'c'], 'leaving again changes nothing');
  c?.();
  t.same(begun, ['a', 'c', 'd']);
  d();
  gate.enter(() => void begun.push('e'));
  t.same(begun, ['a', 'c', 'd', 'e'], 'an empty gate is open');
  t.end();
});

t.test('on different devices at once, on one in turn, and alone where memory of the host is', (t) => {
  const gate = new StartGate();
  const begun: string[] = [];
  const enter = (name: string, devices?: readonly string[]): (() => void) =>
    gate.enter(() => void begun.push(name), devices);
  const zero = enter('zero', ['0']);
  const both = enter('both', ['0', '1']);
  const one = enter('one', ['1']);
  const two = enter('two', ['2']);
  t.same(begun, ['zero', 'two'], 'one waits behind the pair that waits for both');
  zero();
  t.same(begun, ['zero', 'two', 'both']);
  const host = enter('host');
  both();
  t.same(begun, ['zero', 'two', 'both', 'one']);
  two();
  one();
  t.same(begun.at(-1), 'host');
  enter('late', ['7']);
  t.same(begun.at(-1), 'host', 'the host’s memory is counted by all');
  host();
  t.same(begun.at(-1), 'late');
  t.end();
});
