import { setTimeout as wait } from 'node:timers/promises';
import { LoadFailure } from './load-failure.js';
import { LlamaLogLevel } from './package.js';

/** llama.cpp's log lines reach this thread's event loop shortly after the failed call, ms. */
const LATE_MS = 50;

/** The longest line that is kept, in characters. */
const MAX_LINE = 120;

/** A line without details, which follows that of an estimate too: where this thread was held up it may come after `begin`. */
const FAILED = 'failed to load model';

/** Prefixes of llama.cpp's lines, and phrases that only repeat that loading failed. */
const LEAD = /^(?:\w+: |error loading model(?: \w+)?: )+/;

/**
 * llama.cpp's error message for a failed load or first decode: the addon's own error has no details. Only the first
 * error since `begin` is kept, which causes the others, and only until `close`, since later lines may quote content.
 */
export class LlamaLog {
  #first: string | undefined;
  #open = true;

  /** For getLlama. */
  readonly logger = (level: LlamaLogLevel, message: string): void => {
    if (!this.#open || (this.#first !== undefined && this.#first !== FAILED)) return;
    if (level === LlamaLogLevel.error || level === LlamaLogLevel.fatal) this.#first = clean(message);
  };

  /** What came before has nothing to do with what begins now: a backend without a device, an estimate. */
  begin(): void {
    this.#first = undefined;
  }

  /** The first error so far, without its line's end; undefined if none came. */
  async firstError(): Promise<string | undefined> {
    await wait(LATE_MS);
    return this.#first;
  }

  /** The reason of a failure with `error`: llama.cpp's first line, which has more details, or the error's own. */
  async why(error: unknown): Promise<string> {
    return (await this.firstError()) ?? (error instanceof Error ? error.message : 'it gave no reason');
  }

  /** The failure of a load, whose line begins with `what`. Without memory a later attempt may succeed. */
  async failure(error: unknown, what = 'llama.cpp cannot load it'): Promise<LoadFailure> {
    if (error instanceof LoadFailure) return error;
    const why = await this.why(error);
    return new LoadFailure(`${what}: ${why}`, /allocat|memory/i.test(why));
  }

  /** No more lines are kept. */
  close(): void {
    this.#open = false;
  }
}

function clean(message: string): string {
  return message
    .replace(/\p{Cc}+/gu, ' ')
    .replace(/ {2,}/g, ' ')
    .trim()
    .replace(LEAD, '')
    .slice(0, MAX_LINE);
}
