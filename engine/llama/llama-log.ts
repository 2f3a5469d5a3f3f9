import { setTimeout as wait } from 'node:timers/promises';
import { LlamaLogLevel } from 'node-llama-cpp';
import { LoadFailure } from './load-failure.js';

/** Lines reach this thread's event loop a little after the call that caused them has failed, ms. */
const LATE_MS = 50;

/** The longest line that is kept, in characters. */
const MAX_LINE = 120;

/** Whom llama.cpp's lines name first, once or several times, and words that only repeat that loading failed. */
const LEAD = /^(?:\w+: |error loading model(?: \w+)?: )+/;

/**
 * What llama.cpp says of a load or a first decode that fails: the addon's own error says no more than that it did. Only its
 * first error is kept, which is the cause of the others, and only until `close`: lines of later work may quote it.
 */
export class LlamaLog {
  #first: string | undefined;
  #open = true;

  /** To be handed to getLlama. */
  readonly logger = (level: LlamaLogLevel, message: string): void => {
    if (!this.#open || this.#first !== undefined) return;
    if (level === LlamaLogLevel.error || level === LlamaLogLevel.fatal) this.#first = clean(message);
  };

  /** The first error so far, without its line's end; undefined: none came. */
  async firstError(): Promise<string | undefined> {
    await wait(LATE_MS);
    return this.#first;
  }

  /** Of what failed with `error`: llama.cpp's first line, which says more than what comes up from it, or the error's own. */
  async why(error: unknown): Promise<string> {
    return (await this.firstError()) ?? (error instanceof Error ? error.message : 'it gave no reason');
  }

  /** A load that failed with `error`. */
  async failure(error: unknown): Promise<LoadFailure> {
    if (error instanceof LoadFailure) return error;
    const why = await this.why(error);
    return new LoadFailure(`llama.cpp cannot load it: ${why}`, /allocat|memory/i.test(why));
  }

  /** Nothing more is kept. */
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
