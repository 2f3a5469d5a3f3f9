import type {
  Checkpoint,
  Decoder,
  OpenedState,
  StepPart,
  PartResult,
  Run,
  Sampler,
  Sampling,
  SequenceStates,
  StateNotes,
  WholeState,
} from '../../engine/scheduler/decoder.js';
import type { SharedState, StateElsewhere } from '../../engine/protocol/cache-key.js';
import { EngineFault } from '../../engine/scheduler/faults.js';

/** The parts of one step, for assertions. */
export interface SeenPart {
  readonly kind: StepPart['kind'];
  readonly sequence: number;
  readonly tokens: readonly number[];
}

/** Numbers of an embedding. */
export const EMBEDDING = 2;

export interface FakeDecoderOptions {
  readonly truncatable?: boolean;
  readonly copyable?: boolean;
  /** It has checkpoints, and saves whole states. */
  readonly saves?: boolean;
  /** Steps of a run before it reports them; 0: it makes one step at a time. */
  readonly runTells?: number;
  /** Whether a token ends a run. */
  readonly isEnd?: (token: number) => boolean;
  /** Called at first and after each token of a reply: until when the next one is pending. */
  readonly pends?: (sampling: Sampling) => Promise<void> | undefined;
  /** Minus the first label’s log-probability, by the sequence’s tokens; by default their number. */
  readonly score?: (held: readonly number[]) => number;
}

interface FakeSampler extends Sampler {
  readonly sampling: Sampling;
  disposed: boolean;
  pending: Promise<void> | undefined;
}

/**
 * A decoder without a model: it records each sequence’s tokens, and chooses the next token by a function of them, so
 * that a loop that evaluates wrong tokens, forgets to truncate or confuses sequences produces wrong text.
 */
export class FakeDecoder implements Decoder, SequenceStates {
  readonly states = this;
  readonly steps: SeenPart[][] = [];
  readonly held = new Map<number, number[]>();
  /** Parts with embeddings: where in their image they begin, and their first number. */
  readonly embedded: { index: number; of: number; first: number | undefined }[] = [];
  readonly samplers: FakeSampler[] = [];
  /** Sequences whose next part fails. */
  readonly failing = new Set<number>();
  /** Sequences to which the next copy fails. */
  readonly failingCopies = new Set<number>();
  /** Copies made, as [target, source]. */
  readonly copies: [target: number, source: number][] = [];
  /** Forbidden calls of the loop; they also throw, but the loop may catch that. */
  readonly violations: string[] = [];
  readonly truncatable: boolean;
  readonly copyable: boolean;
  readonly save?: (sequence: number) => Promise<Checkpoint>;
  readonly restore?: (sequence: number, checkpoint: Checkpoint) => Promise<void>;
  readonly saveWhole?: (sequence: number, notes?: StateNotes) => Promise<WholeState>;
  readonly restoreWhole?: (sequence: number, state: WholeState) => Promise<void>;
  readonly openWhole?: (elsewhere: StateElsewhere) => OpenedState;
  /** Whole states that were saved or opened, and not disposed. */
  readonly saved = new Map<WholeState, readonly number[]>();
  /** Sequences whose next whole state cannot be saved, or restored. */
  readonly failingMoves = new Set<number>();
  /** Whole states saved and restored, as [what, sequence, tokens]. */
  readonly moves: [what: 'save' | 'restore', sequence: number, tokens: number][] = [];
  /** Called before a step resolves, with its number from 1 on. */
  onStep: (step: number) => void | Promise<void> = () => undefined;
  /** Called during a copy. */
  onCopy: () => void = () => undefined;
  /** Runs that made more than one step. */
  runs = 0;
  readonly #score: (held: readonly number[]) => number;
  readonly #pends: (sampling: Sampling) => Promise<void> | undefined;
  readonly #runTells: number;
  readonly #isEnd: (token: number) => boolean;
  readonly #next: (held: readonly number[], sampling: Sampling) => number;
  #inStep = false;
  #halted = false;

  constructor(
    next: (held: readonly number[], sampling: Sampling) => number,
    {
      truncatable = true,
      copyable = true,
      saves = false,
      score = (held) => held.length,
      runTells = 0,
      isEnd = () => false,
      pends = () => undefined,
    }: FakeDecoderOptions = {},
  ) {
    this.#runTells = runTells;
    this.#isEnd = isEnd;
    this.#pends = pends;
    this.#score = score;
    this.truncatable = truncatable;
    this.copyable = copyable;
    this.#next = next;
    if (!saves) return;
    this.save = (sequence) => Promise.resolve(this.#saved(sequence));
    this.restore = async (sequence, { length }) => {
      if (this.#inStep) throw this.#violation('restored during a step');
      const held = this.held.get(sequence) ?? [];
      if (length > held.length) throw this.#violation('restored what is not there');
      this.held.set(sequence, held.slice(0, length));
    };
    this.saveWhole = async (sequence, notes) => {
      const made = this.#saved(sequence);
      await new Promise(setImmediate);
      if (this.failingMoves.delete(sequence)) throw new EngineFault('scripted');
      const state = this.#kept(made, [...(this.held.get(sequence) ?? [])], notes && share(made.bytes, notes));
      this.moves.push(['save', sequence, state.length]);
      return state;
    };
    this.openWhole = ({ inode, bytes }) => {
      const file = files.get(inode);
      if (!file?.notes) throw new EngineFault('gone');
      const notes = { tokens: file.notes.tokens.slice(), ends: file.notes.ends.slice() };
      const made = { length: notes.tokens.length, bytes, dispose: () => undefined };
      return { state: this.#kept(made, file.held ?? []), notes };
    };
    this.restoreWhole = async (sequence, state) => {
      if (this.#inStep) throw this.#violation('restored during a step');
      const saved = this.saved.get(state);
      if (!saved) throw this.#violation('restored what was disposed');
      this.held.set(sequence, [NaN]);
      await new Promise(setImmediate);
      if (this.failingMoves.delete(sequence)) throw new EngineFault('scripted');
      this.held.set(sequence, [...saved]);
      this.moves.push(['restore', sequence, state.length]);
    };
  }

  /** A state that is disposed by itself, and is then none of the shared ones. */
  #kept(made: Checkpoint, held: readonly number[], shared?: SharedState): WholeState {
    const dispose = (): void => {
      this.saved.delete(state);
      if (shared) files.delete(shared.inode);
    };
    const state: WholeState = { ...made, dispose, ...(shared && { shared }) };
    this.saved.set(state, held);
    if (shared) files.set(shared.inode, { ...files.get(shared.inode), held });
    return state;
  }

  /** A state of ten bytes for each token. */
  #saved(sequence: number): Checkpoint {
    if (this.#inStep) throw this.#violation('saved during a step');
    const { length } = this.held.get(sequence) ?? [];
    return { length, bytes: 10 * length, dispose: () => undefined };
  }

  #begin(parts: readonly StepPart[]): void {
    if (this.#inStep) throw this.#violation('two steps at once');
    this.#inStep = true;
    this.#halted = false;
    const ids = parts.map((part) => part.sequence);
    if (ids.some((id, i) => i > 0 && id <= (ids[i - 1] ?? -1))) throw this.#violation('parts out of order');
    if (parts.length > 1 && parts.some(({ kind }) => kind === 'embeddings')) {
      throw this.#violation('embeddings beside others');
    }
  }

  async *step(parts: readonly StepPart[], run?: Run): AsyncGenerator<PartResult[], PartResult[]> {
    this.#begin(parts);
    let results = await this.#step(parts);
    let untold = results;
    const { most = [1], reserve = 1, once = false, checked = false } = this.#runTells > 0 && run ? run : {};
    const end = once || checked ? 1 : Math.min(...most) - reserve + 1;
    for (let made = 1; made < end && this.#goesOn(parts, results); made += 1) {
      if (made === 1) this.runs += 1;
      // As in the addon, other code has its turn meanwhile.
      await new Promise(setImmediate);
      if (!this.#goesOn(parts, results)) break;
      if (made % this.#runTells === 0) {
        yield untold;
        untold = [];
      }
      const chosen = results.map((result) => (result.kind === 'token' ? result.token : NaN));
      results = await this.#step(parts.map((part, i) => ({ ...part, tokens: Uint32Array.of(chosen[i] ?? NaN) })));
      untold = untold.length === 0 ? results : untold.map((result, i) => joined(result, results[i]));
    }
    this.#inStep = false;
    return untold;
  }

  halt(): void {
    this.#halted = true;
  }

  truncate(sequence: number, length: number): Promise<void> {
    if (this.#inStep) throw this.#violation('truncated during a step');
    const held = this.held.get(sequence) ?? [];
    if (!this.truncatable && length > 0 && length < held.length)
      return Promise.reject(new Error('cannot be truncated'));
    // After a fault the sequence’s tokens are unknown, so a loop that keeps any of them is wrong.
    if (length > held.length) throw this.#violation('kept what is not there');
    this.held.set(sequence, held.slice(0, length));
    return Promise.resolve();
  }

  async copy(target: number, source: number): Promise<void> {
    if (this.#inStep) throw this.#violation('copied during a step');
    if (!this.copyable || target === source) throw this.#violation('cannot be copied');
    this.held.set(target, [NaN]);
    await new Promise(setImmediate);
    this.onCopy();
    if (this.failingCopies.delete(target)) throw new EngineFault('scripted');
    this.held.set(target, [...(this.held.get(source) ?? [])]);
    this.copies.push([target, source]);
  }

  isExpensive(stacks: number): boolean {
    return stacks > 1;
  }

  sampler(sampling: Sampling): Sampler {
    const made: FakeSampler = {
      sampling,
      disposed: false,
      pending: undefined,
      constrain: () => true,
      release: () => undefined,
      dispose() {
        this.disposed = true;
      },
    };
    this.samplers.push(made);
    this.#pend(made);
    return made;
  }

  #pend(sampler: FakeSampler): void {
    const pending = this.#pends(sampler.sampling);
    sampler.pending = pending;
    void pending?.then(() => {
      if (sampler.pending === pending) sampler.pending = undefined;
    });
  }

  async #step(parts: readonly StepPart[]): Promise<PartResult[]> {
    this.steps.push(parts.map((part) => ({ kind: part.kind, sequence: part.sequence, tokens: [...part.tokens] })));
    await this.onStep(this.steps.length);
    return parts.map((part) => this.#run(part));
  }

  /** Whether a run makes another step: nothing has ended, and nothing fails. */
  #goesOn(parts: readonly StepPart[], results: readonly PartResult[]): boolean {
    if (this.#halted) return false;
    const next = parts.every(({ kind, tokens }) => kind === 'sample' && tokens.length === 1);
    const ended = results.some((result) => result.kind !== 'token' || this.#isEnd(result.token));
    return next && !ended && !parts.some(({ sequence }) => this.failing.has(sequence));
  }

  #violation(what: string): Error {
    this.violations.push(what);
    return new Error(what);
  }

  #run(part: StepPart): PartResult {
    if (this.failing.delete(part.sequence)) {
      this.held.set(part.sequence, [NaN]);
      return { kind: 'fault', reason: 'scripted' };
    }
    const held = [...(this.held.get(part.sequence) ?? []), ...part.tokens];
    this.held.set(part.sequence, held);
    switch (part.kind) {
      case 'prefill':
        return { kind: 'filled' };
      case 'embeddings':
        if (part.values.length !== EMBEDDING * part.tokens.length) return { kind: 'fault', reason: 'embeddings' };
        this.embedded.push({ index: part.image.index, of: part.image.of, first: part.values[0] });
        return { kind: 'filled' };
      case 'sample': {
        const sampler = part.sampler as FakeSampler;
        if (sampler.pending) throw this.#violation('sampled what is pending');
        const token = this.#next(held, sampler.sampling);
        this.#pend(sampler);
        return { kind: 'token', token };
      }
      case 'score':
        // The first label’s value depends on the sequence’s length, so that leftovers of another question would show.
        return { kind: 'scores', logprobs: Float64Array.from(part.labels, (_, i) => -(i + 1) * this.#score(held)) };
    }
  }
}

/** States that other decoders can open, by inode. */
const files = new Map<number, { readonly held?: readonly number[]; readonly notes?: StateNotes }>();
let inodes = 0;

function share(bytes: number, { tokens, ends }: StateNotes): SharedState {
  const inode = ++inodes;
  files.set(inode, { notes: { tokens: tokens.slice(), ends: ends.slice() } });
  return { file: 0, inode, bytes, tokens: tokens.length, ends: ends.length, changedAt: 0 };
}

/** A result of a run's steps, and that of the next one. */
function joined(result: PartResult, next: PartResult | undefined): PartResult {
  if (result.kind !== 'token' || next?.kind !== 'token') return next ?? result;
  return { ...result, then: [...(result.then ?? []), next.token] };
}
