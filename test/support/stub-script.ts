import { NO_CACHE, type CacheCounts } from '../../engine/protocol/messages.js';
import type { GpuBackend } from '../../engine/protocol/setup.js';

/**
 * How a test controls the stub engine (engine-stub.ts): the name of its setup’s `file` is a {@link StubScript} as JSON.
 * Behind a whole sidecar that file is a link to a real model, since the prompt host reads it too.
 */
export interface StubScript {
  readonly start?:
    | 'ready'
    | 'unable'
    /** The same, and a later try may do better. */
    | 'unable-now'
    /** Takes the start and never answers it. */
    | 'silent'
    | 'wrong-version'
    | 'ready-twice'
    | 'step-first'
    /** Leaves with code 3. */
    | 'exit'
    /** Prints an assertion and aborts. */
    | 'abort';
  /** GPU backends that it has, best first: each fails so (`on-cpu`: the CPU, after it found no device), and without one it computes on the CPU. */
  readonly gpus?: {
    readonly names: readonly GpuBackend[];
    readonly fail: 'abort' | 'no-step' | 'no-memory' | 'on-cpu';
  };
  /** A generate job’s seed selects what it does, not the first token of its prompt. */
  readonly bySeed?: boolean;
  /** Every generate job is `steady`, but for one with the seed of `hold`, and signals to its process group do not end it: as an engine with a model. */
  readonly steady?: true;
  /** Continues after `shutdown`. */
  readonly deaf?: boolean;
  /** Is to confirm cancels, as its facts have it, and never does. */
  readonly confirmsCancels?: true;
  /** Numbers of its vectors. Default: {@link STUB_WIDTH}. */
  readonly width?: number;
  /** A port on 127.0.0.1 to connect to: the connection closes when the stub ends, however it ends. */
  readonly lifeline?: number;
}

/** Numbers of the stub's vectors: the first is the 64th part of the input's tokens, each other one a quarter. */
export const STUB_WIDTH = 4;

/** What a generate job makes the stub do: the first token of its prompt, or its seed. Any other: `echo`. */
export const STUB_JOB = {
  /** Started; per choice one piece `p<token>` a step for each further token, then finished; done. */
  echo: 0,
  /** Started, then steps without outputs until cancelled. */
  hold: 1,
  /** Started, then heartbeats alone. */
  stuck: 2,
  /** Started, then the event loop blocks forever. */
  block: 3,
  /** A message of an unknown kind. */
  nonsense: 4,
  /** Never started; steps continue. */
  queued: 5,
  segv: 6,
  /** Prints an assertion and the prompt's second token, aborts. */
  abort: 7,
  /** The job alone fails. */
  fail: 8,
  /** An output for a job that was never sent. */
  stranger: 9,
  /** Like hold, but sends more pieces for it after its cancel. */
  late: 10,
  /**
   * Started, then as many steps without outputs as the prompt’s second token selects, one every 5 ms; finished; done.
   */
  slow: 11,
  /** Started, then a message of an unknown kind. */
  breach: 12,
  /** Started, one piece, then steps without outputs until cancelled. */
  begun: 13,
  /** Ends as an engine that got an unknown message. */
  refuse: 14,
  /** Started, then pieces of {@link FLOOD_BYTES} until cancelled, as fast as all flooding jobs share some 100 MB/s. */
  flood: 15,
  /** Started, one piece with the job’s arrival, in ns of the system’s monotonic clock; finished; done. */
  clocked: 16,
  /** The same, and it holds its seat for 5 ms. */
  clockedSlow: 17,
  /** Like echo, with {@link REUSED_TOKENS} of the prompt taken from an earlier one. */
  reused: 18,
  /** Started, one piece; its seat is held {@link PACED_MS} for each of its tokens at most; finished; done. */
  paced: 19,
  /** Wants the embeddings of each image of its prompt; once it has them, one piece `seen`, finished; done. */
  look: 20,
  /** Started, then a token every {@link STEADY_MS} with all others of this kind, up to its `maxTokens`; finished; done. */
  steady: 21,
  /** Started, a thought, a text and a call in two pieces each; finished with the call; done. */
  everything: 22,
  /** Started, then as many tokens as its limit lets it have, in one piece for each limit, up to its `maxTokens`; finished with length; done. Also of a job with a limit that selects `echo`. */
  grow: 23,
} as const;

/** A body without a seed selects by its top-k: this number and that of the job. */
export const STUB_TOP_K = 1_000_000;

/** 80 steps a second. */
export const STEADY_MS = 12.5;

/** The tokens that a stub reports for its sequences. */
export const HELD_TOKENS = { running: 30, kept: 12 } as const;

/** Its prefix cache, as each of its heartbeats has it. */
export const HELD_CACHE: CacheCounts = {
  ...NO_CACHE,
  hits: 3,
  restoredTokens: 200,
  bytes: 4096,
  entries: 2,
  evictions: { ...NO_CACHE.evictions, room: 5 },
};

/** After the results of a list with an input that selects `paced` its end comes so late, ms. */
export const SLOW_LIST_MS = 500;

/** The time of a paced job for a token, ms. */
export const PACED_MS = 5;

/** Of the prompt of a job that reuses. */
export const REUSED_TOKENS = 5;

/** Of one piece of a job that floods. */
export const FLOOD_BYTES = 65_536;
