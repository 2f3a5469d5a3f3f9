import t from 'tap';
import { BatchGate, BatchSlots } from '../../../sidecar/api/batch-slots.js';
import { AbortHandle } from '../../../sidecar/lib/abort.js';
import { FakeClock } from '../../support/fake-clock.js';

function setup(most = 6): {
  clock: FakeClock;
  slots: BatchSlots;
  given: string[];
  ask: (account: string, isRetry?: boolean) => AbortHandle;
} {
  const clock = new FakeClock();
  const slots = new BatchSlots(clock, () => most);
  const given: string[] = [];
  const ask = (account: string, isRetry = false): AbortHandle => {
    const signal = new AbortHandle();
    void slots
      .acquire('m', account, isRetry, signal)
      .then((isGiven) => given.push(`${account}${isGiven ? '' : ' none'}`));
    return signal;
  };
  return { clock, slots, given, ask };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

t.test('slots go to the account with the fewest, and to lines that were refused first', async (t) => {
  const { slots, given, ask } = setup();
  for (const account of ['a', 'a', 'a', 'a', 'a', 'a', 'b']) ask(account);
  await settled();
  t.same(given.splice(0), ['a', 'a', 'a', 'a'], 'four at first');
  slots.release('m', 'a', 'other');
  await settled();
  t.same(given.splice(0), ['b']);
  ask('a', true);
  slots.release('m', 'b', 'other');
  await settled();
  t.same(given, ['a']);
});

t.test('answers let more in, up to the bound; a refusal fewer, after a wait that doubles', async (t) => {
  const { clock, slots, given, ask } = setup(6);
  for (let i = 0; i < 30; i += 1) ask('a');
  await settled();
  for (let i = 0; i < 9; i += 1) slots.release('m', 'a', 'answered');
  await settled();
  t.equal(given.splice(0).length, 4 + 9 + 2, 'six at once');
  slots.release('m', 'a', 'refused');
  slots.release('m', 'a', 'other');
  await settled();
  t.same(given.splice(0), []);
  clock.advance(500);
  await settled();
  t.equal(given.splice(0).length, 1);
  slots.release('m', 'a', 'refused');
  slots.release('m', 'a', 'other');
  clock.advance(999);
  await settled();
  t.same(given.splice(0), []);
  clock.advance(1);
  await settled();
  t.equal(given.length, 1);
});

t.test('who stops waiting gets none', async (t) => {
  const { slots, given, ask } = setup(1);
  ask('a');
  const stops = ask('b');
  ask('c');
  stops.abort();
  slots.release('m', 'a', 'other');
  await settled();
  t.same(given, ['a', 'b none', 'c']);
  t.equal(await slots.acquire('m', 'd', false, stops), false);
});

function gateSetup(): {
  clock: FakeClock;
  gate: BatchGate;
  begun: string[];
  come: (name: string, isRetry?: boolean) => void;
} {
  const clock = new FakeClock();
  const gate = new BatchGate(clock);
  const begun: string[] = [];
  const come = (name: string, isRetry = false): void =>
    void gate.enter(isRetry, new AbortHandle()).then((turn) => begun.push(`${name} ${turn}`));
  return { clock, gate, begun, come };
}

t.test(
  'after a pause one line is tried, one that was refused first; the others follow if it needs no pause',
  async (t) => {
    const { clock, gate, begun, come } = gateSetup();
    come('a');
    await settled();
    gate.pause(1000);
    gate.end('free');
    t.notOk(gate.isOpenTo('free'));
    come('new');
    come('again', true);
    come('third', true);
    clock.advance(999);
    await settled();
    t.same(begun.splice(0), ['a free']);
    clock.advance(1);
    await settled();
    t.same(begun.splice(0), ['again trial']);
    gate.pause(1000);
    gate.end('trial');
    clock.advance(1000);
    await settled();
    t.same(begun.splice(0), ['third trial']);
    gate.end('trial');
    await settled();
    t.same(begun, ['new free']);
    t.ok(gate.isOpenTo('free'));
  },
);

t.test('who waits alone keeps nobody, but not more than a few may', async (t) => {
  const { clock, gate, begun, come } = gateSetup();
  for (let i = 0; i < 16; i += 1) void gate.alone(60_000, new AbortHandle());
  come('new');
  come('again', true);
  await settled();
  t.same(begun.splice(0), ['again free']);
  clock.advance(60_000);
  await settled();
  t.same(begun, ['new free']);
});

t.test('a pause is asked about again after a minute, and has a reason while it lasts', async (t) => {
  const { clock, gate, begun, come } = gateSetup();
  const problem = { code: 'quota_exceeded', message: 'm', param: null, line: null };
  gate.pause(86_400_000, problem);
  t.equal(gate.problem, problem);
  come('a');
  clock.advance(60_000);
  await settled();
  t.same(begun, ['a trial']);
  gate.end('trial');
  t.equal(gate.problem, undefined);
});
