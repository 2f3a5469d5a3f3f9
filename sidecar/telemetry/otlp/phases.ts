import type { RequestRecord, Attempt } from '../tracing.js';

/** The phases of a request. `authorize` overlaps `receive` and `prepare`; all others follow each other. */
export type PhaseName = 'authorize' | 'receive' | 'prepare' | 'queue' | 'prefill' | 'decode' | 'flush';

/** Times are clock readings. */
export interface Phase {
  readonly name: PhaseName;
  readonly from: number;
  readonly until: number;
  /** The replica of the model's engine that worked, by its index. */
  readonly replica?: number;
  /** The engine was lost before it started the request, which then waited again. */
  readonly lost?: true;
}

/**
 * The phases of a request; the last one is where it ended. In Server-Timing, `prepare` is `ra-admit`, `queue` is
 * `ra-queue`, and both with `prefill` are `ra-ttft`.
 */
export function phasesOf({
  operation,
  startedAt,
  authorized,
  receivedAt,
  lost,
  last,
  endedAt,
}: RequestRecord): Phase[] {
  const phases: Phase[] = authorized ? [{ name: 'authorize', ...authorized }] : [];
  // Routes without a model end after the key's check.
  if (operation === undefined) return phases;
  phases.push({ name: 'receive', from: startedAt, until: receivedAt ?? endedAt });
  if (receivedAt === undefined) return phases;
  phases.push({ name: 'prepare', from: receivedAt, until: (lost[0] ?? last)?.readyAt ?? endedAt });
  for (const one of lost) phases.push(...triedAndLost(one));
  if (last) phases.push(...tried(last, operation === 'chat', endedAt));
  return phases;
}

function triedAndLost({ readyAt, seatedAt, replica, handedOverAt, ranUntil }: Attempt): Phase[] {
  const from = handedOverAt ?? readyAt;
  return [
    { name: 'queue', from: readyAt, until: seatedAt ?? from },
    { name: 'prefill', from, until: ranUntil ?? from, ...on(replica), lost: true },
  ];
}

/** `decodes`: tokens are generated after the prompt, unlike for decisions. */
function tried(
  { readyAt, seatedAt, replica, handedOverAt, firstTokenAt, ranUntil }: Attempt,
  decodes: boolean,
  end: number,
): Phase[] {
  // A request that has a seat and ends before it is sent to the engine counts as waiting.
  if (handedOverAt === undefined) return [{ name: 'queue', from: readyAt, until: end }];
  const phases: Phase[] = [{ name: 'queue', from: readyAt, until: seatedAt ?? handedOverAt }];
  phases.push({ name: 'prefill', from: handedOverAt, until: firstTokenAt ?? ranUntil ?? end, ...on(replica) });
  if (decodes && firstTokenAt !== undefined)
    phases.push({ name: 'decode', from: firstTokenAt, until: ranUntil ?? end, ...on(replica) });
  if (ranUntil !== undefined && ranUntil < end) phases.push({ name: 'flush', from: ranUntil, until: end });
  return phases;
}

function on(replica: number | undefined): Pick<Phase, 'replica'> {
  return replica === undefined ? {} : { replica };
}
