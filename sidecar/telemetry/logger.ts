/**
 * The log: one JSON object per line on stdout. Only this file uses pino.
 *
 * No prompt, completion, header or key may be logged. So callers cannot pass arbitrary objects: a line has an event
 * name from a fixed list and fields from a closed list. The list is also enforced at run time, texts are truncated and
 * searched for keys, and of an unexpected error only parts that cannot quote a request are kept.
 */
import { Console } from 'node:console';
import { Writable } from 'node:stream';
import { destination as stdoutDestination, pino, stdTimeFunctions, type Logger as Pino } from 'pino';
import { describeFault, scrub, type Fault } from './scrub.js';

const TEXT = 'string';
const NUMBER = 'number';

/** The fields of a line besides its event. Texts are constants, ids and names, never text of a caller. */
const FIELDS = {
  model: TEXT,
  /** Which of the model's engine processes, where there are several. */
  replica: NUMBER,
  route: TEXT,
  account: TEXT,
  keyId: TEXT,
  status: NUMBER,
  /** A code of the error catalogue, or of the operating system. */
  code: TEXT,
  /** A short constant text: the reason of an event. */
  reason: TEXT,
  outcome: TEXT,
  phase: TEXT,
  /** Which prompt host. */
  lane: TEXT,
  durationMs: NUMBER,
  queueMs: NUMBER,
  ttftMs: NUMBER,
  retryAfterMs: NUMBER,
  promptTokens: NUMBER,
  cachedTokens: NUMBER,
  completionTokens: NUMBER,
  draftedTokens: NUMBER,
  acceptedTokens: NUMBER,
  /** A usage record's id. */
  usageId: TEXT,
  bytes: NUMBER,
  count: NUMBER,
  /** Requests that a drain ended before they were finished. */
  aborted: NUMBER,
  seats: NUMBER,
  /** The device that an engine computes on: `cpu`, `cuda`, `vulkan`, `metal`. */
  backend: TEXT,
  pid: NUMBER,
  exitCode: NUMBER,
  signal: TEXT,
  host: TEXT,
  port: NUMBER,
  file: TEXT,
  version: TEXT,
  /** Where the configuration comes from. */
  config: TEXT,
  /** Ids of the request's trace, with OpenTelemetry's names. */
  trace_id: TEXT,
  span_id: TEXT,
  /** `traces` or `metrics`, for exports to an OTLP endpoint. */
  otlp: TEXT,
} as const;

export type LogFields = {
  readonly [Name in keyof typeof FIELDS]?: (typeof FIELDS)[Name] extends typeof TEXT ? string : number;
} & {
  /** Any thrown value. Its message is kept only if it comes from the operating system. */
  readonly fault?: unknown;
  /** Written as `fault`: what was thrown in a child process, which has described it. */
  readonly childFault?: Fault;
};

/** The log that all parts use. `event` is a constant such as `engine restarted`. */
export interface Log {
  error(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  debug(event: string, fields?: LogFields): void;
  /** The same log with the request's id on every line. */
  forRequest(requestId: string): Log;
}

export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent';

/** A target for whole lines; tests pass their own. */
export interface LogTarget {
  write(line: string): void;
  flushSync?(): void;
  /** Writes what is left and closes; then emits `close`. */
  end?(): void;
  once?(event: 'close' | 'error', fn: () => void): unknown;
  on?(event: 'error', fn: (error: NodeJS.ErrnoException) => void): unknown;
}

/** Bytes of lines that may wait while stdout's reader has stopped; further lines are dropped to bound memory. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

/** How long closing waits for the last lines, ms: a stalled reader must not keep the process alive. */
export const CLOSE_MS = 2000;

/**
 * Opens the log. Lines are written asynchronously; `close` resolves when the rest is written or cannot be. Lines
 * that come later are dropped: parts of a service that ends may still log. `process.exit` without `close` also writes the
 * rest, but hangs if stdout's reader is gone.
 *
 * A log that cannot be written is not a fault: lines wait within the bound and are retried with the next one, or are
 * lost if the reader is gone. `unwritable` is called with the operating system's code, the first time only.
 */
export function openLog(
  level: LogLevel,
  target: LogTarget = stdout(),
  unwritable: (code: string) => void = () => undefined,
): { readonly log: Log; close(): Promise<void> } {
  let problem: string | undefined;
  // Without a listener, a full disk would cause an uncaught exception.
  target.on?.('error', ({ code = 'unknown' }) => {
    const first = problem === undefined;
    problem = code;
    if (first) unwritable(code);
  });
  const out = pino({ level, base: null, timestamp: stdTimeFunctions.isoTime, messageKey: 'event' }, target);
  return { log: logOf(out), close: () => closed(target, problem === NO_READER) };
}

/** The code for a pipe without a reader: no later write can succeed. */
const NO_READER = 'EPIPE';

/** sonic-boom's flushSync, which pino calls at exit, retries forever on a pipe without a reader; `end` does not. */
async function closed(target: LogTarget, lost: boolean): Promise<void> {
  const written = new Promise<void>((resolve) => {
    // This timer keeps the process alive, unlike the clock's; otherwise an idle process would end before this settles.
    const timer = setTimeout(resolve, CLOSE_MS);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    target.once?.('close', done);
    target.once?.('error', done);
    if (lost) done();
    else target.end?.();
    // sonic-boom throws on a write after its end.
    target.write = () => undefined;
  });
  await written;
  target.flushSync = () => undefined;
}

/**
 * Lines of level info that come within this time, ms, or up to this many characters, are written together, since each write wakes one of
 * libuv's threads and then the event loop. Warnings and errors are written at once.
 */
const TOGETHER_MS = 20;
const TOGETHER_CHARACTERS = 16 * 1024;

function stdout(): LogTarget {
  const out = stdoutDestination({ fd: 1, sync: false, maxLength: MAX_WAITING_BYTES });
  const [write, end, flushSync] = [out.write.bind(out), out.end.bind(out), out.flushSync.bind(out)];
  let lines = '';
  let timer: NodeJS.Timeout | undefined;
  const pass = (then?: () => void): void => {
    clearTimeout(timer);
    timer = undefined;
    if (lines !== '') write(lines);
    lines = '';
    then?.();
  };
  const take = (line: string): void => {
    lines += line;
    if (lines.length >= TOGETHER_CHARACTERS || !line.startsWith('{"level":30,')) pass();
    else timer ??= setTimeout(() => pass(), TOGETHER_MS);
  };
  // At the process's exit, which waits for no thread, none is given a task.
  const last = (): void => {
    Object.assign(out, { minLength: Infinity });
    pass(flushSync);
  };
  return Object.assign(out, { write: take, end: () => pass(end), flushSync: last });
}

/** `of`: the request that its lines are about. A logger of pino's own for each request would take longer than its line. */
function logOf(out: Pino, of: { readonly requestId?: string } = {}): Log {
  return {
    error: (event, fields) => out.error(safe(fields, of), event),
    warn: (event, fields) => out.warn(safe(fields, of), event),
    info: (event, fields) => out.info(safe(fields, of), event),
    debug: (event, fields) => out.debug(safe(fields, of), event),
    forRequest: (requestId) => logOf(out, { requestId: scrub(requestId) }),
  };
}

/** Only the fields of the list, whatever object was passed, after those of `of`. */
function safe(fields: LogFields = {}, of: object): Record<string, unknown> {
  const kept: Record<string, unknown> = { ...of };
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'fault') kept['fault'] = describeFault(value);
    else if (name === 'childFault') kept['fault'] = value;
    else if (!Object.hasOwn(FIELDS, name)) continue;
    else if (typeof value === 'number') kept[name] = value;
    else if (typeof value === 'string') kept[name] = scrub(value);
  }
  return kept;
}

/**
 * Replaces the process's `console` by one that prints nothing. stdout is the log, one JSON object a line, and what a
 * library prints may quote anything: NATS' client prints bytes of its server, which may contain the credentials that it
 * was sent. Nothing of ours uses `console`. Each text leaves one constant line, for those who look for what is missing.
 */
export function quietConsole(log: Pick<Log, 'debug'>): void {
  const nowhere = new Writable({
    write: (_text, _encoding, done) => {
      log.debug('a library printed, which is not shown');
      done();
    },
  });
  globalThis.console = new Console(nowhere);
}
