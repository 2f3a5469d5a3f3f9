/** Drives one engine process for `ra-sidecar bench`: each figure takes a bounded time, with all measured seats busy throughout. */
import type { Clock } from '../lib/clock.js';
import type { EngineFacts, EngineJob, JobHandle, ModelKind } from '../engine-client/engine.js';
import { ALL_ACCOUNTS, tokenPrompt } from '../engine-client/engine.js';

/** The engine to measure. */
export interface Bench {
  readonly facts: EngineFacts;
  readonly run: (job: EngineJob) => JobHandle;
}

export interface Figures {
  /** Prompt tokens a second, one prompt at a time. */
  readonly promptTokensPerSecond: number;
  /** Chat models: reply tokens a second with one seat busy, and with all. */
  readonly replyTokensPerSecond?: { readonly oneSeat: number; readonly allSeats: number };
  /** Decision models: questions answered a second, one after another. */
  readonly decisionsPerSecond?: number;
}

/** Tokens of the measured prompt, if the seat has room for them. */
const PROMPT_TOKENS = 512;

/** A typical decision: an input, and a question with its template. */
const INPUT_TOKENS = 256;
const TAIL_TOKENS = 32;

/** How much longer than its measuring time a figure waits for its first job, ms; then the engine is too slow. */
const FIRST_JOB_MS = 60_000;

/** Measures one model, each figure for about `ms`. Rejects when the engine fails or no job ends in time. */
export async function measure(
  bench: Bench,
  kind: ModelKind,
  ms: number,
  clock: Clock,
  progress: (share: number) => void,
): Promise<Figures> {
  const { seats, contextPerSeat } = bench.facts;
  const phases = kind === 'chat' ? 3 : kind === 'decision' ? 2 : 1;
  let done = 0;
  const run = async (width: number, job: StartJob): Promise<number> => {
    const share = (part: number): void => progress((done + part) / phases);
    const perSecond = await rateOf({ clock, ms, width, start: job, share });
    done += 1;
    return perSecond;
  };
  if (kind === 'decision') {
    const half = Math.floor(contextPerSeat / 2);
    const prompt = Math.min(PROMPT_TOKENS, half);
    return {
      promptTokensPerSecond: await run(1, scoring(bench, prompt, 1, prompt + 1)),
      decisionsPerSecond: await run(1, scoring(bench, Math.min(INPUT_TOKENS, half), Math.min(TAIL_TOKENS, half), 1)),
    };
  }
  if (kind !== 'chat')
    return { promptTokensPerSecond: await run(seats, embedding(bench, Math.min(INPUT_TOKENS, contextPerSeat))) };
  const prompt = Math.min(PROMPT_TOKENS, contextPerSeat - 1);
  const reply = Math.max(1, Math.min(256, contextPerSeat - 8));
  return {
    promptTokensPerSecond: await run(1, (i, progress) => generate(bench, i, prompt, 1, progress, () => prompt)),
    replyTokensPerSecond: {
      oneSeat: await run(1, (i, progress) => generate(bench, i, 8, reply, progress, (tokens) => tokens)),
      allSeats: await run(seats, (i, progress) => generate(bench, i, 8, reply, progress, (tokens) => tokens)),
    },
  };
}

/** Progress of a job: the work done since the last report, and its end. */
interface JobProgress {
  worked(amount: number): void;
  ended(): void;
  failed(): void;
}

/** What every receiver of these jobs has. */
function endsOf(progress: JobProgress) {
  return {
    started: () => undefined,
    cached: () => undefined,
    seatFreed: () => undefined,
    done: () => progress.ended(),
    failed: () => progress.failed(),
  };
}

type StartJob = (i: number, progress: JobProgress) => JobHandle;

interface Phase {
  readonly clock: Clock;
  readonly ms: number;
  /** Concurrent jobs. */
  readonly width: number;
  readonly start: StartJob;
  readonly share: (part: number) => void;
}

/** Work per second, from the first start to the last reported work, measured for at least `ms` and until something was done. */
function rateOf({ clock, ms, width, start, share }: Phase): Promise<number> {
  return new Promise((resolve, reject) => {
    const from = clock.now();
    const jobs = new Map<number, JobHandle>();
    let next = 0;
    let amount = 0;
    let lastAt = from;
    let over = false;
    const finish = (error?: Error): void => {
      if (over) return;
      over = true;
      giveUp();
      for (const job of jobs.values()) void job.cancel();
      const seconds = (lastAt - from) / 1000;
      if (error) reject(error);
      else resolve(amount / seconds);
    };
    const giveUp = clock.after(ms + FIRST_JOB_MS, () => finish(new Error('it is too slow to be measured')));
    const begin = (): void => {
      if (over) return;
      const i = next++;
      const job = start(i, {
        worked: (more) => {
          if (over) return;
          amount += more;
          lastAt = clock.now();
          share(Math.min(1, (lastAt - from) / ms));
          if (lastAt - from >= ms) finish();
        },
        ended: () => {
          jobs.delete(i);
          begin();
        },
        failed: () => finish(new Error('the engine failed')),
      });
      jobs.set(i, job);
    };
    for (let i = 0; i < width; i += 1) begin();
  });
}

/** `work`: the weight of reply tokens, or of a prompt alone. */
function generate(
  { facts, run }: Bench,
  i: number,
  promptTokens: number,
  maxTokens: number,
  progress: JobProgress,
  work: (tokens: number) => number,
): JobHandle {
  let reported = 0;
  const tokens = (so: number): void => {
    if (so > reported) progress.worked(work(so - reported));
    reported = Math.max(reported, so);
  };
  return run({
    kind: 'generate',
    job: {
      prompt: tokenPrompt(someTokens(i, promptTokens, facts.vocabulary)),
      n: 1,
      seats: 1,
      maxTokens,
      temperature: 1,
      topP: 1,
      frequencyPenalty: 0,
      presencePenalty: 0,
      seed: i,
      stops: [],
      scope: ALL_ACCOUNTS,
    },
    receiver: {
      piece: (piece) => tokens(piece.tokens),
      call: () => undefined,
      finished: ({ completionTokens }) => tokens(completionTokens),
      ...endsOf(progress),
    },
  });
}

/** One input. */
function embedding({ facts, run }: Bench, tokens: number): StartJob {
  return (i, progress) =>
    run({
      kind: 'embed',
      job: {
        scope: ALL_ACCOUNTS,
        weight: 1,
        seats: 1,
        tokens: someTokens(i, tokens, facts.vocabulary),
        lengths: Uint32Array.of(tokens),
      },
      receiver: { vectors: () => progress.worked(tokens), ...endsOf(progress) },
    });
}

/** One question; `worth`: its weight. */
function scoring({ facts, run }: Bench, input: number, tail: number, worth: number): StartJob {
  return (i, progress) =>
    run({
      kind: 'score',
      job: {
        scope: ALL_ACCOUNTS,
        isolate: true,
        seats: 1,
        input: someTokens(i, input, facts.vocabulary),
        questions: [{ tail: someTokens(i + 1, tail, facts.vocabulary), labels: Uint32Array.of(0, 1), temperature: 1 }],
        temperature: 1,
      },
      receiver: { answer: () => progress.worked(worth), ...endsOf(progress) },
    });
}

/** Tokens after the start of a vocabulary, where control tokens often are, and different ones for each `i`. */
function someTokens(i: number, count: number, vocabulary: number): Uint32Array {
  const first = Math.min(300, vocabulary >> 1);
  const range = Math.max(1, Math.min(700, vocabulary - first));
  return Uint32Array.from({ length: count }, (_, at) => first + ((i * 31 + at * 7 + (at >> 4)) % range));
}
