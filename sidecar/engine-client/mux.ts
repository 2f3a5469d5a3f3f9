/**
 * Many jobs over one channel: assigns ids, forwards results to the jobs' sinks, and checks the order that
 * engine/protocol/messages.ts defines. It does not know the process. One mux per engine process.
 */
import {
  PROTOCOL_VERSION,
  type GenerateJob,
  type Output,
  type ScoreJob,
  type ToEngine,
} from '../../engine/protocol/messages.js';
import { IdMap } from '../lib/id-map.js';
import type { EngineFault, GenerationSink, JobHandle, ScoreSink } from './engine.js';

/** Bound of concurrent jobs. Every job holds a seat, so this only catches a caller's bug. */
export const MAX_JOBS = 1024;

interface Reply {
  readonly id: number;
  readonly kind: 'generate';
  readonly sink: GenerationSink;
  readonly n: number;
  /** Seats that the job holds. */
  seats: number;
  /** Choices that are finished. */
  readonly ended: Set<number>;
  /** Number of calls begun, by choice. */
  readonly calls: Map<number, number>;
  started: boolean;
}

interface Scoring {
  readonly id: number;
  readonly kind: 'score';
  readonly sink: ScoreSink;
  /** Labels per question. */
  readonly labels: readonly number[];
  /** Seats that the job holds. */
  seats: number;
  /** Questions that are answered. */
  readonly ended: Set<number>;
  started: boolean;
}

type Pending = Reply | Scoring;

export class Mux {
  readonly #send: (message: ToEngine) => void;
  readonly #onThrow: OnThrow;
  readonly #onFailed: (reason: string) => void;
  readonly #jobs = new IdMap<Pending>();
  #lastId = 0;

  /**
   * `onThrow` is called if a sink throws: a bug of its owner, whose job ends as failed while the others continue.
   * `onFailed` is called with the engine's reason for a failed job.
   */
  constructor(
    send: (message: ToEngine) => void,
    onThrow: OnThrow,
    onFailed: (reason: string) => void = () => undefined,
  ) {
    this.#send = send;
    this.#onThrow = onThrow;
    this.#onFailed = onFailed;
  }

  /** Jobs that have not ended. */
  get pending(): number {
    return this.#jobs.size;
  }

  generate(job: GenerateJob, sink: GenerationSink): JobHandle {
    const id = ++this.#lastId;
    const { n, seats } = job;
    const none = { ended: new Set<number>(), calls: new Map<number, number>(), started: false };
    const pending: Reply = { id, kind: 'generate', sink, n, seats, ...none };
    return this.#open(pending, { v: PROTOCOL_VERSION, kind: 'generate', id, job });
  }

  score(job: ScoreJob, sink: ScoreSink): JobHandle {
    const id = ++this.#lastId;
    const labels = job.questions.map((question) => question.labels.length);
    const pending: Scoring = { id, kind: 'score', sink, labels, seats: job.seats, ended: new Set(), started: false };
    return this.#open(pending, { v: PROTOCOL_VERSION, kind: 'score', id, job });
  }

  /**
   * Forwards one step's outputs to their sinks, in order. Outputs of ended or cancelled jobs are dropped. Returns
   * undefined, or the protocol violation; then the rest was not forwarded and the engine must be killed.
   */
  apply(outputs: readonly Output[]): string | undefined {
    for (const output of outputs) {
      if (output.id === 0 || output.id > this.#lastId) return 'unknown-job';
      const pending = this.#jobs.get(output.id);
      if (pending === undefined) continue;
      const violation = misplaced(pending, output);
      if (violation !== undefined) return violation;
      this.#deliver(pending, output);
    }
    return undefined;
  }

  /**
   * The engine has ended: every job fails. After a protocol violation the started ones fail as `protocol`; one that had
   * not started is `lost` in both cases and may return to the queue.
   */
  lost(kind: 'lost' | 'protocol'): void {
    const jobs = this.#jobs.values();
    this.#jobs.clear();
    for (const { sink, started } of jobs) fail(sink, { kind: started ? kind : 'lost', started }, this.#onThrow);
  }

  #open(pending: Pending, message: ToEngine): JobHandle {
    if (this.#jobs.size >= MAX_JOBS) return failSoon(pending.sink, { kind: 'failed', started: false }, this.#onThrow);
    this.#jobs.set(pending.id, pending);
    this.#send(message);
    const { id } = pending;
    return { cancel: () => this.#cancel(id), reduceSeats: () => this.#reduceSeats(id) };
  }

  #reduceSeats(id: number): void {
    if (this.#jobs.get(id) !== undefined) this.#send({ v: PROTOCOL_VERSION, kind: 'reduceSeats', id });
  }

  #cancel(id: number): void {
    if (this.#jobs.delete(id)) this.#send({ v: PROTOCOL_VERSION, kind: 'cancel', id });
  }

  /** Jobs are removed from the map before their last call, so a sink may cancel or start others inside it. */
  #deliver(pending: Pending, output: Output): void {
    try {
      switch (output.kind) {
        case 'started':
          pending.started = true;
          pending.sink.started(output.cachedTokens);
          break;
        case 'freed':
          pending.seats -= 1;
          pending.sink.freed();
          break;
        case 'done':
          this.#jobs.delete(pending.id);
          pending.sink.done();
          break;
        case 'failed':
          this.#jobs.delete(pending.id);
          this.#onFailed(output.reason);
          pending.sink.failed({ kind: 'failed', started: pending.started });
          break;
        default:
          deliverResult(pending, output);
      }
    } catch (error) {
      this.#onThrow(error);
      if (this.#jobs.get(pending.id) === undefined) return;
      this.#cancel(pending.id);
      fail(pending.sink, { kind: 'failed', started: pending.started }, this.#onThrow);
    }
  }
}

type OnThrow = (error: unknown) => void;

/** Fails a job that never reached an engine, in a microtask, unless it is cancelled first. */
export function failSoon(sink: GenerationSink | ScoreSink, fault: EngineFault, onThrow: OnThrow): JobHandle {
  let cancelled = false;
  queueMicrotask(() => {
    if (!cancelled) fail(sink, fault, onThrow);
  });
  const cancel = (): void => {
    cancelled = true;
  };
  return { cancel, reduceSeats: () => undefined };
}

function fail(sink: GenerationSink | ScoreSink, fault: EngineFault, onThrow: OnThrow): void {
  try {
    sink.failed(fault);
  } catch (error) {
    onThrow(error);
  }
}

type Result = Extract<Output, { kind: 'piece' | 'call' | 'finished' | 'answer' }>;

/** The output's fields without id and kind, as the sinks' interface has them. */
function deliverResult(pending: Pending, output: Result): void {
  if (pending.kind === 'score') {
    if (output.kind !== 'answer') return;
    const { question, probabilities, labelMass } = output;
    pending.ended.add(question);
    pending.sink.answer({ question, probabilities, labelMass });
  } else if (output.kind === 'piece') {
    const { choice, channel, text, tokens } = output;
    pending.sink.piece({ choice, channel, text, tokens });
  } else if (output.kind === 'call') {
    const { choice, index, name, arguments: part, tokens } = output;
    pending.calls.set(choice, Math.max(index + 1, pending.calls.get(choice) ?? 0));
    pending.sink.call({ choice, index, arguments: part, tokens, ...(name !== undefined && { name }) });
  } else if (output.kind === 'finished') {
    const { choice, reason, matchedStop, completionTokens, reasoningTokens } = output;
    pending.ended.add(choice);
    const stop = matchedStop !== undefined && { matchedStop };
    pending.sink.finished({ choice, reason, completionTokens, reasoningTokens, ...stop });
  }
}

/** Why this output is not allowed now, or undefined. */
function misplaced(pending: Pending, output: Output): string | undefined {
  if (output.kind === 'failed') return undefined;
  if (output.kind === 'started') return pending.started ? 'started-twice' : undefined;
  if (!pending.started) return 'not-started';
  const expected = pending.kind === 'generate' ? pending.n : pending.labels.length;
  switch (output.kind) {
    case 'freed':
      return pending.seats > 1 ? undefined : 'freed-last';
    case 'done':
      return pending.ended.size === expected ? undefined : 'done-early';
    case 'answer':
      if (pending.kind !== 'score') return 'wrong-kind';
      if (pending.ended.has(output.question)) return 'answered-twice';
      return output.probabilities.length === pending.labels[output.question] ? undefined : 'wrong-answer';
    default:
      if (pending.kind !== 'generate') return 'wrong-kind';
      if (output.choice >= expected || pending.ended.has(output.choice)) return 'wrong-choice';
      return output.kind === 'call' && !inTurn(output, pending.calls.get(output.choice) ?? 0)
        ? 'wrong-call'
        : undefined;
  }
}

/** A part with a name starts the next call; one without continues the last. */
function inTurn({ index, name }: Extract<Output, { kind: 'call' }>, begun: number): boolean {
  return index === (name === undefined ? begun - 1 : begun);
}
