import { ENGINE_EXIT } from '../../engine/protocol/messages.js';

/** Why a life of an engine process ended, as one word for logs and metrics. */
export type ExitReason =
  /** It could not be forked. */
  | 'unstartable'
  /** No `ready` in time. */
  | 'start-timeout'
  /** It said that its model cannot be served. */
  | 'unable'
  | 'hang'
  | 'protocol'
  /** By a signal from outside: the out-of-memory killer or an operator. */
  | 'killed'
  /** By a fault of its own: a segfault and its kin. */
  | 'crashed'
  /** By an assertion of its own. */
  | 'aborted'
  /** By itself, with an exit code. */
  | 'exited';

const CRASHES: ReadonlySet<string> = new Set(['SIGSEGV', 'SIGBUS', 'SIGILL', 'SIGFPE', 'SIGTRAP', 'SIGSYS']);

/** The word for how a process ended that nobody here had killed. */
export function exitReason(signal: string | null): ExitReason {
  if (signal === null) return 'exited';
  if (signal === 'SIGABRT') return 'aborted';
  return CRASHES.has(signal) ? 'crashed' : 'killed';
}

/** What the engine's own exit codes mean, for the log. */
export function exitDetail(code: number | null): { detail?: string } {
  return code === ENGINE_EXIT.protocol ? { detail: 'it was sent a message that it does not know' } : {};
}

/** What is known to be said on stderr by a process about to die, and the word for it. The first that is found counts. */
const HINTS = [
  ['JavaScript heap out of memory', 'heap-exhausted'],
  ['GGML_ASSERT', 'assertion'],
  ['CUDA error', 'device-error'],
  ['ErrorDeviceLost', 'device-error'],
  ['out of memory', 'out-of-memory'],
  ['failed to allocate', 'out-of-memory'],
  ['cannot open shared object file', 'missing-library'],
  ['ERR_MODULE_NOT_FOUND', 'missing-module'],
] as const;

export type StderrHint = (typeof HINTS)[number][1];

/** Characters of stderr that are kept to look for a hint. */
const TAIL = 8192;

/**
 * The end of a child's stderr, kept only to be matched against known phrases. The text itself is never given out: an
 * uncaught error's message could hold a prompt.
 */
export class StderrTail {
  #text = '';

  add(chunk: string): void {
    this.#text = (this.#text + chunk).slice(-TAIL);
  }

  /** A known cause of death, or undefined. */
  get hint(): StderrHint | undefined {
    return HINTS.find(([phrase]) => this.#text.includes(phrase))?.[1];
  }
}
