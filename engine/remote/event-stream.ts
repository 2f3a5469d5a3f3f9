/** Reads an event stream of JSON frames, as servers of models send it. */

/** The longest frame, in UTF-16 units: one of all tokens' probabilities is some megabytes for a large vocabulary. */
const MAX_FRAME = 64 * 1024 * 1024;

/** What a stream's next bytes contained. */
export type Frame =
  | { readonly kind: 'json'; readonly value: unknown }
  /** `[DONE]`: nothing comes after it. */
  | { readonly kind: 'done' }
  /** No JSON, or longer than {@link MAX_FRAME}. */
  | { readonly kind: 'garbage' };

/** Bytes arrive in any pieces. Lines other than `data:` (comments, pings, event names) are skipped. */
export class EventStream {
  readonly #decoder = new TextDecoder('utf-8');
  #rest = '';

  /** A frame has begun and not ended. */
  get unfinished(): boolean {
    return this.#rest.trim() !== '';
  }

  /** Adds bytes; returns the frames that are complete now. */
  push(bytes: Uint8Array): Frame[] {
    const text = this.#decoder.decode(bytes, { stream: true });
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    const frames = lines.flatMap(frameOf);
    if (this.#rest.length <= MAX_FRAME) return frames;
    this.#rest = '';
    return [...frames, { kind: 'garbage' }];
  }
}

function frameOf(line: string): Frame[] {
  if (!line.startsWith('data:')) return [];
  const data = line.slice('data:'.length).trim();
  if (data === '[DONE]') return [{ kind: 'done' }];
  try {
    return [{ kind: 'json', value: JSON.parse(data) as unknown }];
  } catch {
    return [{ kind: 'garbage' }];
  }
}
