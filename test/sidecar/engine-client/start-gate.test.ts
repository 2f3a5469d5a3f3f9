import t from 'tap';
import { StartGate } from '../../../sidecar/engine-client/start-gate.js';

t.test('one at a time, in the order of arrival', async (t) => {
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
});

t.test('on different devices at once, on one in turn, and alone where memory of the host is', async (t) => {
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
});

t.test(
  'an index and a UUID that may be of one device load in turn, and so do two beginnings of one UUID',
  async (t) => {
    const begun: string[] = [];
    const both = (one: string, other: string): number => {
      const gate = new StartGate();
      begun.length = 0;
      for (const device of [one, other]) gate.enter(() => void begun.push(device), [device]);
      return begun.length;
    };
    t.equal(both('0', 'GPU-aa1'), 1);
    t.equal(both('MIG-cc3', '1'), 1);
    t.equal(both('GPU-aa', 'GPU-aa1'), 1);
    t.equal(both('GPU-aa1', 'GPU-aa'), 1);
    t.equal(both('1', '12'), 2);
    t.equal(both('GPU-aa1', 'GPU-bb2'), 2);
  },
);
