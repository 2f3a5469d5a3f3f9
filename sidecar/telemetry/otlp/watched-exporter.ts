import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import type { Clock } from '../../lib/clock.js';

/** Added to an export's own time limit, which does not cover an endpoint that sends an endless answer, ms. */
const SLACK_MS = 1000;

interface Exporter<T> {
  export(items: T, report: (result: ExportResult) => void): void;
  forceFlush?(): Promise<void>;
  shutdown(): Promise<void>;
}

export interface WatchedOptions {
  readonly clock: Clock;
  /** The exporter's own time limit, ms. */
  readonly timeoutMs: number;
  /** Called at each end; `why` is a status or a code, and no text of the endpoint's. */
  readonly ended: (ok: boolean, why: string) => void;
}

/** Wraps an exporter of the SDK, so that its exports end within a time limit and each end is reported. */
export class WatchedExporter<T> {
  readonly #inner: Exporter<T>;
  readonly #options: WatchedOptions;

  constructor(inner: Exporter<T>, options: WatchedOptions) {
    this.#inner = inner;
    this.#options = options;
  }

  export(items: T, report: (result: ExportResult) => void): void {
    const { clock, timeoutMs, ended } = this.#options;
    let over = false;
    const end = (result: ExportResult): void => {
      if (over) return;
      over = true;
      cancel();
      ended(result.code === ExportResultCode.SUCCESS, reasonOf(result.error));
      report(result);
    };
    const fail = (error: Error): void => end({ code: ExportResultCode.FAILED, error });
    const cancel = clock.after(timeoutMs + SLACK_MS, () => fail(new Error('timeout')));
    try {
      this.#inner.export(items, end);
    } catch (error) {
      fail(error instanceof Error ? error : new Error('thrown'));
    }
  }

  async forceFlush(): Promise<void> {
    await this.#inner.forceFlush?.();
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown();
  }
}

/** Messages of the SDK and of this file for an export that took too long. */
const LATE: ReadonlySet<string> = new Set(['Request timed out', 'timeout']);

/** An HTTP status or an operating system's code, `timeout`, or `failed` where it is none of them. */
function reasonOf(error: Error | undefined): string {
  const code = error && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') return `status ${code}`;
  if (typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code)) return code;
  return error && LATE.has(error.message) ? 'timeout' : 'failed';
}
