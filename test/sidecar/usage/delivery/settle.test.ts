import t from 'tap';
import { usageEvent, type CloseRecord, type UsageEvent } from '../../../../sidecar/usage/delivery/cloud-event.js';
import { settle, type Settled } from '../../../../sidecar/usage/delivery/settle.js';
import type { SinkAnswer } from '../../../../sidecar/usage/delivery/sink.js';
import { usageRecord } from '../../../support/usage-records.js';

const EVENTS = 'abcd'.split('').map((id) => usageEvent(usageRecord(id, 'close') as CloseRecord, '/s'));
const ids = (events: readonly UsageEvent[]): string => events.map(({ id }) => id).join('');

/** Settles `abcd` with a sink that gives these answers, then accepts. */
async function settled(
  ...answers: readonly SinkAnswer[]
): Promise<Settled & { readonly sent: string[]; readonly buried: string }> {
  const sent: string[] = [];
  let buried = '';
  const left = [...answers];
  const sink = {
    deliver: (batch: readonly UsageEvent[]): Promise<SinkAnswer> => {
      sent.push(ids(batch));
      return Promise.resolve(left.shift() ?? { kind: 'accepted' });
    },
    close: () => Promise.resolve(),
  };
  const refuse = (events: readonly UsageEvent[]): Promise<boolean> => {
    buried += ids(events);
    return Promise.resolve(true);
  };
  return { ...(await settle(EVENTS, sink, refuse, new AbortController().signal)), sent, buried };
}

t.test('accepted events before a failure are settled up to the first that was not accepted', async (t) => {
  const later = { kind: 'later', why: 'x' } as const;
  t.match(await settled({ ...later, taken: [0, 1, 3] }), { settled: 2, accepted: 3, later });
  t.match(await settled({ ...later, taken: [1] }), { settled: 0, accepted: 1, later });
  t.match(await settled({ ...later, taken: [] }), { settled: 0, accepted: 0, later });
});

t.test('events accepted beside a refused one are not sent again, and the rest is', async (t) => {
  const outcome = await settled({ kind: 'refused', indices: [1], taken: [0, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 3, sent: ['abcd', 'c'], buried: 'b' });
});

t.test('a single event in a refused batch is the refused one', async (t) => {
  const outcome = await settled({ kind: 'refused', taken: [0, 1, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 3, sent: ['abcd'], buried: 'c' });
});

t.test('a sink that refuses what it has accepted leads to an end', async (t) => {
  const outcome = await settled({ kind: 'refused', indices: [0], taken: [0, 1, 2, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 4, sent: ['abcd'], buried: '' });
  const halved = await settled({ kind: 'refused', indices: [0], taken: [0], status: 7 });
  t.strictSame(halved.sent, ['abcd', 'b', 'cd']);
});
