import type { UsageEvent } from './cloud-event.js';
import type { DeliverySink, SinkAnswer } from './sink.js';

type Later = Extract<SinkAnswer, { kind: 'later' }>;

export interface Settled {
  /** Events from the start of the batch, without a gap, that the sink accepted or rejected. */
  readonly settled: number;
  /**
   * Events that the sink accepted. Those after an event that it did not accept are not settled: they will be sent
   * again.
   */
  readonly accepted: number;
  /** Present: a part is not settled and must be sent again. */
  readonly later?: Later;
}

/**
 * Sends a batch until each event is accepted or rejected. A batch that is rejected as a whole is halved until the
 * faulty event is found, the first half first, so that the order stays; this takes at most twice as many requests as
 * there are events. `refuse` makes an event durable as a dead letter; false: it cannot, so the event is not settled.
 */
export async function settle(
  events: readonly UsageEvent[],
  sink: DeliverySink,
  refuse: (events: readonly UsageEvent[], status: number) => Promise<boolean>,
  signal: AbortSignal,
): Promise<Settled> {
  const open = new Set(events.keys());
  let accepted = 0;
  const outcome = (later?: Later): Settled => {
    const [first = events.length] = open;
    return { settled: first, accepted, ...(later && { later }) };
  };

  // Parts that are still to be sent, as indices of the batch; the next one last.
  const parts: (readonly number[])[] = [[...open]];
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const answer = await sink.deliver(pick(events, part), signal);
    const taken = answer.kind === 'accepted' ? part : pick(part, answer.taken ?? []);
    for (const i of taken) open.delete(i);
    accepted += taken.length;
    if (answer.kind === 'later') return outcome(answer);
    const left = part.filter((i) => open.has(i));
    if (answer.kind === 'accepted' || left.length === 0) continue;
    const refused = left.length === 1 ? left : pick(part, answer.indices ?? []).filter((i) => open.has(i));
    if (refused.length === 0) {
      const middle = left.length >> 1;
      parts.push(left.slice(middle), left.slice(0, middle));
      continue;
    }
    if (!(await refuse(pick(events, refused), answer.status))) {
      return outcome({ kind: 'later', why: 'dead letters full' });
    }
    for (const i of refused) open.delete(i);
    const rest = part.filter((i) => open.has(i));
    if (rest.length > 0) parts.push(rest);
  }
  return outcome();
}

/** The items at `places`, each once and in order; invalid indices are skipped. */
function pick<T>(items: readonly T[], places: readonly number[]): T[] {
  const wanted = new Set(places);
  return items.filter((_, i) => wanted.has(i));
}
