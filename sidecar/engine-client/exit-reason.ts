import { ENGINE_EXIT } from '../../engine/protocol/messages.js';

/** Why an engine process ended, as one word for logs and metrics. */
export type ExitReason =
  /** It could not be forked. */
  | 'unstartable'
  /** No `ready` in time. */
  | 'start-timeout'
  /** It reported that its model cannot be served. */
  | 'unable'
  | 'hang'
  | 'protocol'
  /** By a signal from outside: the out-of-memory killer or an operator. */
  | 'killed'
  /** By a fault of its own, such as a segmentation fault. */
  | 'crashed'
  /** By an assertion of its own. */
  | 'aborted'
  /** By itself, with an exit code. */
  | 'exited';

const CRASHES: ReadonlySet<string> = new Set(['SIGSEGV', 'SIGBUS', 'SIGILL', 'SIGFPE', 'SIGTRAP', 'SIGSYS']);

/** The word for the end of a process that this process did not kill. */
export function exitReason(signal: string | null): ExitReason {
  if (signal === null) return 'exited';
  if (signal === 'SIGABRT') return 'aborted';
  return CRASHES.has(signal) ? 'crashed' : 'killed';
}

/** The meaning of the engine's own exit codes, for the log. `serverProblem`: what it reported last of its external server. */
export function exitDetail(code: number | null, serverProblem?: string): { detail?: string } {
  if (code === ENGINE_EXIT.protocol) return { detail: 'it received an unknown message' };
  return code === ENGINE_EXIT.lost ? { detail: serverProblem ?? 'its server is gone, or is another one' } : {};
}

/** Known phrases in the stderr of a process about to end, and their words. The first match counts. */
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

/** Characters of stderr that are searched for a hint. */
const TAIL = 8192;

/**
 * The end of a child's stderr, kept only to be matched against known phrases. The text itself is never returned, since
 * an uncaught error's message could contain a prompt.
 */
export class StderrTail {
  #text = '';

  add(chunk: string): void {
    this.#text = (this.#text + chunk).slice(-TAIL);
  }

  /** A known cause, or undefined. */
  get hint(): StderrHint | undefined {
    return HINTS.find(([phrase]) => this.#text.includes(phrase))?.[1];
  }
}

/** How a child's process ended. */
export interface ChildEnd {
  readonly reason: ExitReason;
  /**
   * protocol: the violation; hang: silent or stuck; unable: the engine's error line; unstartable: the operating
   * system's code; never content.
   */
  readonly detail?: string;
  /** unable: a later attempt may succeed. */
  readonly mayMend?: boolean;
  /** A known phrase in the last output of the engine. */
  readonly hint?: StderrHint;
  readonly code: number | null;
  readonly signal: string | null;
}
