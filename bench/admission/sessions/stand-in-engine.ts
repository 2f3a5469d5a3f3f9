/**
 * A stand-in for an engine with many agents: a loop of steps, each one decode for all replies and then one chunk of a prompt within a share
 * of its time; sequences that keep the state of their last session; a host cache of overwritten states. Its times are those measured of
 * 8 B weights on a GPU, and of 150 M weights on a CPU (docs/benchmarks.md), so that hours of an engine are simulated in seconds.
 */
import type { SequenceClaims } from '../../../sidecar/admission/types.js';
import type { Agenda } from '../agenda.js';

/** Times of an engine, ms. */
export interface Device {
  /** To compute a prompt token at the start of a context; twice as long after `depth` tokens. */
  readonly tokenMs: number;
  readonly depth: number;
  /** A decode for `n` replies. */
  readonly stepMs: (n: number) => number;
  /** To save or restore the state of a token. */
  readonly saveMs: number;
  readonly restoreMs: number;
  /** Prompt tokens of one step. */
  readonly chunk: number;
  /** Time for prompts beside replies, in steps of the replies. */
  readonly promptShare: number;
}

export const GPU: Device = {
  tokenMs: 0.092,
  depth: 30_000,
  stepMs: (n) => (n <= 8 ? 4.1 + 0.53 * n : 7 + 0.165 * n),
  saveMs: 0.078,
  restoreMs: 0.2275,
  chunk: 1024,
  promptShare: 4,
};

export const CPU: Device = {
  tokenMs: 4.9,
  depth: Infinity,
  stepMs: (n) => 13 + 6 * n,
  saveMs: 0.0058,
  restoreMs: 0.0163,
  chunk: 256,
  promptShare: 0.5,
};

/** A job, as the simulation asks for it. Its fields with counts change while it runs. */
export interface StandInJob {
  readonly session: number;
  readonly account: string;
  readonly promptTokens: number;
  /** Leading tokens that all prompts of the account have. */
  readonly sharedTokens: number;
  readonly replyTokens: number;
  readonly claims: SequenceClaims | undefined;
  /** Its prompt comes after those of all others. Absent: it does not. */
  readonly background?: true;
  readonly started: (cachedTokens: number) => void;
  readonly first: () => void;
  readonly ended: () => void;
}

interface Running extends StandInJob {
  readonly job: StandInJob;
  readonly sequence: Sequence;
  /** Prompt tokens that it has, and replies' tokens. */
  at: number;
  made: number;
  starved: number;
}

interface Sequence {
  /** Whose state it holds; -1: none. */
  session: number;
  account: string;
  tokens: number;
  live: boolean;
  usedAt: number;
  /** By which the queue knows the session. */
  claim: number | undefined;
}

/** A prompt that waits for so many steps goes before shorter ones. */
const STARVED = 8;
/** Fewer prompt tokens are not begun beside replies. */
const LEAST_CHUNK = 256;

export class StandInEngine {
  readonly #agenda: Agenda;
  readonly #device: Device;
  readonly #sequences: readonly Sequence[];
  readonly #hostTokens: number;
  readonly #host = new Map<number, { tokens: number; usedAt: number; account: string }>();
  #hostUsed = 0;
  #uses = 0;
  #pending: StandInJob[] = [];
  #running: Running[] = [];
  readonly #cancelled = new Set<StandInJob>();
  #goes = false;
  #credit = 0;
  /** Prompt tokens since the start, and those of them that were not computed. */
  promptTokens = 0;
  cachedTokens = 0;

  constructor(agenda: Agenda, device: Device, sequences: number, hostTokens: number) {
    this.#agenda = agenda;
    this.#device = device;
    this.#hostTokens = hostTokens;
    this.#sequences = Array.from({ length: sequences }, () => {
      return { session: -1, account: '', tokens: 0, live: false, usedAt: 0, claim: undefined };
    });
  }

  /**
   * Returns a function that stops the job at the next step, before any job is begun there, and returns how many tokens of its prompt and
   * of its reply are computed.
   */
  run(job: StandInJob): () => { readonly at: number; readonly made: number } {
    this.#pending.push(job);
    const cancel = (): { readonly at: number; readonly made: number } => {
      this.#cancelled.add(job);
      return this.#running.find((running) => running.job === job) ?? { at: 0, made: 0 };
    };
    if (this.#goes) return cancel;
    this.#goes = true;
    this.#agenda.after(0, () => this.#step());
    return cancel;
  }

  #step(): void {
    if (this.#cancelled.size > 0) {
      this.#pending = this.#pending.filter((job) => !this.#cancelled.has(job));
      for (const running of this.#running.filter(({ job }) => this.#cancelled.has(job))) this.#free(running);
      this.#cancelled.clear();
    }
    const hadReplies = this.#running.some((job) => job.at >= job.promptTokens);
    let ms = 0;
    // Beside replies one copy a step.
    for (let job = this.#pending.shift(); job !== undefined; job = this.#pending.shift()) {
      ms += this.#take(job);
      if (hadReplies && ms > 0) break;
    }
    if (this.#running.length === 0) {
      this.#goes = false;
      return;
    }
    const replies = this.#running.filter((job) => job.at >= job.promptTokens);
    const stepMs = replies.length > 0 ? this.#device.stepMs(replies.length) : 0;
    const { prompt, tokens, promptMs } = this.#chunk(replies.length, stepMs);
    this.#agenda.after(ms + stepMs + promptMs, () => {
      if (prompt !== undefined) prompt.at += tokens;
      for (const reply of replies) {
        if (this.#cancelled.has(reply.job)) continue;
        reply.made += 1;
        if (reply.made === 1) reply.first();
        if (reply.made >= reply.replyTokens) this.#end(reply);
      }
      this.#step();
    });
  }

  /** The chunk of a prompt in this step: of the one that is ready first, unless another has waited for long. */
  #chunk(replies: number, stepMs: number): { prompt?: Running; tokens: number; promptMs: number } {
    const { tokenMs, depth, chunk, promptShare } = this.#device;
    const prompts = this.#running.filter((job) => job.at < job.promptTokens);
    const left = ({ promptTokens, at }: Running): number => promptTokens - at;
    let prompt = prompts[0];
    for (const other of prompts) {
      const [late, was] = [other.starved >= STARVED, (prompt?.starved ?? 0) >= STARVED];
      if (other.background !== prompt?.background) {
        if (other.background === undefined) prompt = other;
      } else if (prompt === undefined || (late !== was ? late : left(other) < left(prompt))) prompt = other;
    }
    if (prompt === undefined) {
      this.#credit = 0;
      return { tokens: 0, promptMs: 0 };
    }
    const each = tokenMs * (1 + prompt.at / depth);
    let tokens = Math.min(chunk, left(prompt));
    if (replies > 0) {
      this.#credit += promptShare * Math.max(1, prompts.length / replies) * stepMs;
      tokens = Math.min(tokens, Math.floor(this.#credit / each));
      if (tokens < Math.min(LEAST_CHUNK, left(prompt))) tokens = 0;
      this.#credit -= tokens * each;
    }
    for (const other of prompts) other.starved = other === prompt && tokens > 0 ? 0 : other.starved + 1;
    return { prompt, tokens, promptMs: tokens > 0 ? tokens * each + 1 : 0 };
  }

  /** Gives a job its sequence. Returns the time of the copies for that, ms. */
  #take(job: StandInJob): number {
    const { session, account, promptTokens, sharedTokens, claims } = job;
    const free = this.#sequences.filter(({ live }) => !live);
    const own = free.find((sequence) => sequence.session === session);
    let copyMs = 0;
    let kept = own === undefined ? 0 : Math.min(own.tokens, promptTokens - 1);
    let sequence = own;
    if (sequence === undefined) {
      const others = free.filter(({ claim }) => claim === undefined || claims?.kept.includes(claim) !== true);
      const candidates = others.length > 0 ? others : free;
      sequence = candidates.reduce((a, b) => (b.tokens === 0 || (a.tokens > 0 && b.usedAt < a.usedAt) ? b : a));
      copyMs += this.#save(sequence);
      const shared = this.#holdsShared(account) ? sharedTokens : 0;
      const saved = this.#host.get(session);
      kept = Math.min(shared, promptTokens - 1);
      if (saved !== undefined && Math.min(saved.tokens, promptTokens - 1) - 64 - saved.tokens / 32 > shared) {
        kept = Math.min(saved.tokens, promptTokens - 1);
        copyMs += saved.tokens * this.#device.restoreMs;
        saved.usedAt = this.#uses += 1;
      }
    }
    Object.assign(sequence, { live: true, session, account, tokens: 0, claim: claims?.session });
    this.promptTokens += promptTokens;
    this.cachedTokens += kept;
    this.#running.push({ ...job, job, sequence, at: kept, made: 0, starved: 0 });
    job.started(kept);
    return copyMs;
  }

  #holdsShared(account: string): boolean {
    const holds = (held: { readonly account: string; readonly tokens: number }): boolean =>
      held.account === account && held.tokens > 0;
    return this.#sequences.some((sequence) => holds(sequence)) || [...this.#host.values()].some(holds);
  }

  /** Saves the state of a sequence that is overwritten. Returns the time that takes, ms. */
  #save({ session, tokens, account }: Sequence): number {
    const had = this.#host.get(session)?.tokens ?? 0;
    if (tokens < 64 || had >= tokens || tokens > this.#hostTokens) return 0;
    this.#drop(session);
    while (this.#hostUsed + tokens > this.#hostTokens) {
      let oldest = -1;
      for (const [other, { usedAt }] of this.#host) {
        if (oldest < 0 || usedAt < (this.#host.get(oldest)?.usedAt ?? 0)) oldest = other;
      }
      this.#drop(oldest);
    }
    this.#host.set(session, { tokens, usedAt: (this.#uses += 1), account });
    this.#hostUsed += tokens;
    return tokens * this.#device.saveMs;
  }

  #drop(session: number): void {
    this.#hostUsed -= this.#host.get(session)?.tokens ?? 0;
    this.#host.delete(session);
  }

  #end(job: Running): void {
    this.#free(job);
    job.ended();
  }

  #free(job: Running): void {
    this.#running = this.#running.filter((other) => other !== job);
    Object.assign(job.sequence, { live: false, tokens: job.at + job.made, usedAt: (this.#uses += 1) });
  }
}
