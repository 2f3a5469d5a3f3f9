import type { RequestRecord, Try } from '../tracing.js';

/** The parts of a request's time. `authorize` lies within what is received and prepared; all others follow each other. */
export type PhaseName = 'authorize' | 'receive' | 'prepare' | 'queue' | 'prefill' | 'decode' | 'flush';

/** Times are clock readings. */
export interface Phase {
  readonly name: PhaseName;
  readonly from: number;
  readonly until: number;
  /** The engine was lost in it before it began, and the request waited again. */
  readonly lost?: true;
}

/**
 * The parts that a request came through; the last one is where it ended. As Server-Timing has it: `prepare` and `queue`
 * are `ra-admit` and `ra-queue`, and with `prefill` they are `ra-ttft`.
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
  // What uses no model is over with its key's check.
  if (operation === undefined) return phases;
  phases.push({ name: 'receive', from: startedAt, until: receivedAt ?? endedAt });
  if (receivedAt === undefined) return phases;
  phases.push({ name: 'prepare', from: receivedAt, until: (lost[0] ?? last)?.readyAt ?? endedAt });
  for (const one of lost) phases.push(...triedAndLost(one));
  if (last) phases.push(...tried(last, operation === 'chat', endedAt));
  return phases;
}

function triedAndLost({ readyAt, seatedAt, handedOverAt, ranUntil }: Try): Phase[] {
  const from = handedOverAt ?? readyAt;
  return [
    { name: 'queue', from: readyAt, until: seatedAt ?? from },
    { name: 'prefill', from, until: ranUntil ?? from, lost: true },
  ];
}

/** `decodes`: a reply follows the prompt; questions are answered by their prompts alone. */
function tried(
  { readyAt, seatedAt, handedOverAt, firstTokenAt, ranUntil }: Try,
  decodes: boolean,
  end: number,
): Phase[] {
  // One that has a seat and ends before the engine has heard of it ends as one that waited.
  if (handedOverAt === undefined) return [{ name: 'queue', from: readyAt, until: end }];
  const phases: Phase[] = [{ name: 'queue', from: readyAt, until: seatedAt ?? handedOverAt }];
  phases.push({ name: 'prefill', from: handedOverAt, until: firstTokenAt ?? ranUntil ?? end });
  if (decodes && firstTokenAt !== undefined)
    phases.push({ name: 'decode', from: firstTokenAt, until: ranUntil ?? end });
  if (ranUntil !== undefined && ranUntil < end) phases.push({ name: 'flush', from: ranUntil, until: end });
  return phases;
}
