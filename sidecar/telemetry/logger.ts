/**
 * The log: one JSON object a line on stdout, made by pino, which nothing else knows.
 *
 * No prompt, completion, header or key may reach it. So callers cannot hand over objects of their own: a line is an event
 * name of ours and fields from a closed list, the list is enforced again at run time, texts are cut and searched for
 * keys, and of an unexpected error only what cannot quote a request is kept.
 */
import { destination as stdoutDestination, pino, stdTimeFunctions, type Logger as Pino } from 'pino';
import { describeFault, scrub } from './scrub.js';

/** What a line can say besides its event. Texts are constants, ids and names, never anything that a caller wrote. */
export interface LogFields {
  readonly model?: string;
  readonly route?: string;
  readonly account?: string;
  readonly keyId?: string;
  readonly status?: number;
  /** A code of the error catalogue, or of the operating system. */
  readonly code?: string;
  /** A short text of ours: why something happened. */
  readonly reason?: string;
  readonly outcome?: string;
  readonly phase?: string;
  /** Which of the two prompt hosts. */
  readonly lane?: string;
  readonly durationMs?: number;
  readonly queueMs?: number;
  readonly ttftMs?: number;
  readonly retryAfterMs?: number;
  readonly promptTokens?: number;
  readonly cachedTokens?: number;
  readonly completionTokens?: number;
  /** A usage record's id. */
  readonly usageId?: string;
  readonly bytes?: number;
  readonly count?: number;
  readonly seats?: number;
  /** What an engine computes on: `cpu`, `cuda`, `vulkan`, `metal`. */
  readonly backend?: string;
  readonly pid?: number;
  readonly exitCode?: number;
  readonly signal?: string;
  readonly host?: string;
  readonly port?: number;
  readonly file?: string;
  readonly version?: string;
  /** Of the request's trace; OpenTelemetry's names for them. */
  readonly trace_id?: string;
  readonly span_id?: string;
  /** `traces` or `metrics`, on their way to an OTLP endpoint. */
  readonly otlp?: string;
  /** Anything that was thrown. Its message is kept only when the operating system wrote it. */
  readonly fault?: unknown;
}

/** Where every part writes. `event` is a constant such as `engine restarted`. */
export interface Log {
  error(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  debug(event: string, fields?: LogFields): void;
  /** The same log with the request's id on every line. */
  forRequest(requestId: string): Log;
}

export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent';

/** Anything that takes whole lines; tests hand in their own. */
export interface LogTarget {
  write(line: string): void;
  flushSync?(): void;
  /** Writes what is left and closes; then `close` is told. */
  end?(): void;
  once?(event: 'close' | 'error', fn: () => void): unknown;
  on?(event: 'error', fn: (error: NodeJS.ErrnoException) => void): unknown;
}

const FIELDS: Readonly<Record<Exclude<keyof LogFields, 'fault'>, true>> = {
  model: true,
  route: true,
  account: true,
  keyId: true,
  status: true,
  code: true,
  reason: true,
  outcome: true,
  phase: true,
  lane: true,
  durationMs: true,
  queueMs: true,
  ttftMs: true,
  retryAfterMs: true,
  promptTokens: true,
  cachedTokens: true,
  completionTokens: true,
  usageId: true,
  bytes: true,
  count: true,
  seats: true,
  backend: true,
  pid: true,
  exitCode: true,
  signal: true,
  host: true,
  port: true,
  file: true,
  version: true,
  trace_id: true,
  span_id: true,
  otlp: true,
};

/** Bytes of lines that wait for a reader of stdout who has stopped reading; further lines are lost, not the memory. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

/** The last lines are waited for so long, ms: a reader that has stalled or died is not to keep the process. */
const CLOSE_MS = 2000;

/**
 * Opens the log. Lines are written without waiting; `close` resolves when what is left is written, or cannot be. After it
 * nothing is logged. An ordinary `process.exit` without it writes the rest too, but hangs when stdout's reader is gone.
 *
 * A log that cannot be written is no fault: lines wait within their bound and are tried again with the next one, or are lost
 * where the reader is gone. `unwritable` is called with the operating system's code, the first time only.
 */
export function openLog(
  level: LogLevel,
  target: LogTarget = stdout(),
  unwritable: (code: string) => void = () => undefined,
): { readonly log: Log; close(): Promise<void> } {
  let problem: string | undefined;
  // Without a listener a full disk would be an uncaught exception.
  target.on?.('error', ({ code = 'unknown' }) => {
    const first = problem === undefined;
    problem = code;
    if (first) unwritable(code);
  });
  const out = pino({ level, base: null, timestamp: stdTimeFunctions.isoTime, messageKey: 'event' }, target);
  return {
    log: new PinoLog(out),
    close: () => closed(target, problem === NO_READER),
  };
}

/** The code for a pipe without a reader: nothing will ever be written. */
const NO_READER = 'EPIPE';

/** sonic-boom's flushSync, which pino calls at the exit, tries a pipe without a reader again for ever; `end` gives up. */
async function closed(target: LogTarget, lost: boolean): Promise<void> {
  const written = new Promise<void>((resolve) => {
    // It keeps the process alive, unlike the clock's: else one without anything else to do ends before this settles.
    const timer = setTimeout(resolve, CLOSE_MS);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    target.once?.('close', done);
    target.once?.('error', done);
    if (lost) done();
    else target.end?.();
  });
  await written;
  target.flushSync = () => undefined;
}

function stdout(): LogTarget {
  return stdoutDestination({ fd: 1, sync: false, maxLength: MAX_WAITING_BYTES });
}

class PinoLog implements Log {
  readonly #pino: Pino;

  constructor(out: Pino) {
    this.#pino = out;
  }

  error(event: string, fields?: LogFields): void {
    this.#pino.error(safe(fields), event);
  }

  warn(event: string, fields?: LogFields): void {
    this.#pino.warn(safe(fields), event);
  }

  info(event: string, fields?: LogFields): void {
    this.#pino.info(safe(fields), event);
  }

  debug(event: string, fields?: LogFields): void {
    if (this.#pino.isLevelEnabled('debug')) this.#pino.debug(safe(fields), event);
  }

  forRequest(requestId: string): Log {
    return new PinoLog(this.#pino.child({ requestId: scrub(requestId) }));
  }
}

/** The fields of the list and no others, whatever object was passed. */
function safe(fields: LogFields = {}): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'fault') kept['fault'] = describeFault(value);
    else if (!Object.hasOwn(FIELDS, name)) continue;
    else if (typeof value === 'number') kept[name] = value;
    else if (typeof value === 'string') kept[name] = scrub(value);
  }
  return kept;
}
