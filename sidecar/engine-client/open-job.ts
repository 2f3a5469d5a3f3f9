/** A job of a multiplexer: what has come of it so far, and which output may come next. */
import type { Output } from '../../engine/protocol/job-output.js';
import type { GenerationReceiver, ScoreReceiver } from './engine.js';

export interface OpenGeneration {
  readonly id: number;
  readonly kind: 'generate';
  readonly receiver: GenerationReceiver;
  readonly n: number;
  /** Seats that the job holds. */
  seats: number;
  /** Choices that are finished. */
  readonly ended: Set<number>;
  /** Number of calls begun, by choice. */
  readonly calls: Map<number, number>;
  /** Images whose embeddings it waits for. */
  readonly missingImages: Set<number>;
  started: boolean;
}

export interface OpenScoring {
  readonly id: number;
  readonly kind: 'score';
  readonly receiver: ScoreReceiver;
  /** Labels per question. */
  readonly labels: readonly number[];
  /** Seats that the job holds. */
  seats: number;
  /** Questions that are answered. */
  readonly ended: Set<number>;
  started: boolean;
}

export type OpenJob = OpenGeneration | OpenScoring;

/** The outputs after which the engine computes nothing more of the job. */
export function isEnd({ kind }: Output): boolean {
  return kind === 'cancelled' || kind === 'done' || kind === 'failed' || kind === 'returned';
}

/** Why this output is not allowed now, or undefined. */
export function misplaced(opened: OpenJob, output: Output): string | undefined {
  if (output.kind === 'failed') return undefined;
  if (output.kind === 'returned') return opened.started ? 'returned-late' : undefined;
  if (output.kind === 'started') return opened.started ? 'started-twice' : undefined;
  if (!opened.started) return 'not-started';
  const expected = opened.kind === 'generate' ? opened.n : opened.labels.length;
  switch (output.kind) {
    case 'seatFreed':
      return opened.seats > 1 ? undefined : 'freed-last';
    case 'needsImage':
      return opened.kind === 'generate' && opened.receiver.needsImage && !opened.missingImages.has(output.image)
        ? undefined
        : 'wrong-image';
    case 'done':
      return opened.ended.size === expected ? undefined : 'done-early';
    case 'answer':
      if (opened.kind !== 'score') return 'wrong-kind';
      if (opened.ended.has(output.question)) return 'answered-twice';
      return output.probabilities.length === opened.labels[output.question] ? undefined : 'wrong-answer';
    case 'cached':
      return undefined;
    case 'cancelled':
      return 'not-cancelled';
    default:
      if (opened.kind !== 'generate') return 'wrong-kind';
      if (output.choice >= expected || opened.ended.has(output.choice)) return 'wrong-choice';
      return output.kind === 'call' && !inTurn(output, opened.calls.get(output.choice) ?? 0) ? 'wrong-call' : undefined;
  }
}

/** A part with a name starts the next call; one without continues the last. */
function inTurn({ index, name }: Extract<Output, { kind: 'call' }>, begun: number): boolean {
  return index === (name === undefined ? begun - 1 : begun);
}

type Result = Extract<Output, { kind: 'piece' | 'call' | 'finished' | 'answer' }>;

/** The output's fields without id and kind, as the receivers' interface has them. */
export function deliverResult(opened: OpenJob, output: Result): void {
  if (opened.kind === 'score') {
    if (output.kind !== 'answer') return;
    const { question, probabilities, labelMass } = output;
    opened.ended.add(question);
    opened.receiver.answer({ question, probabilities, labelMass });
  } else if (output.kind === 'piece') {
    const { choice, channel, text, tokens } = output;
    opened.receiver.piece({ choice, channel, text, tokens });
  } else if (output.kind === 'call') {
    const { choice, index, name, arguments: part, tokens } = output;
    opened.calls.set(choice, Math.max(index + 1, opened.calls.get(choice) ?? 0));
    opened.receiver.call({ choice, index, arguments: part, tokens, ...(name !== undefined && { name }) });
  } else if (output.kind === 'finished') {
    const { choice, reason, matchedStop, completionTokens, reasoningTokens } = output;
    opened.ended.add(choice);
    const stop = matchedStop !== undefined && { matchedStop };
    opened.receiver.finished({ choice, reason, completionTokens, reasoningTokens, ...stop });
  }
}
