import type { CacheKey } from '../protocol/cache-key.js';
import { imagesOf, promptIds, type PlacedImage, type Prompt } from '../protocol/prompt.js';

/** Where the state is saved of a model that cannot truncate it. */
export interface SavePoints {
  /** A place that is wanted; it is the last. */
  readonly upTo: number;
  /**
   * Whether a token begins or ends a turn of a chat. Where one is found, that is where another prompt is likely to differ: then
   * the state is saved before such tokens, and seldom elsewhere. Absent: none does.
   */
  readonly isMark?: (token: number) => boolean;
  /** With marks too, it is saved at `upTo` itself. Otherwise the last mark before it takes its place. */
  readonly exactly: boolean;
}

/** Of a chat's prompt of so many tokens: control tokens are around its turns. `exactly`: as in {@link SavePoints}. */
export function chatPoints(
  length: number,
  model: { control(token: number): string | undefined },
  exactly: boolean,
): SavePoints {
  return { upTo: length - 1, isMark: (token) => model.control(token) !== undefined, exactly };
}

/**
 * A chunk that ends at a mark has at least this part of a whole one, 64 of 256 tokens: llama.cpp's flash attention on a CPU has a
 * tiled kernel for 64 tokens and more (ops.cpp), and computes fewer one by one.
 */
const LEAST_CHUNK = 1 / 4;
/**
 * Tokens from the end of a turn to the start of the next: a mark each, in most templates with a line break between them. The split is
 * before the later one, which leaves fewer tokens for the last decode of a prompt: a decode of a few tokens takes much longer for each
 * than a chunk does.
 */
export const TURN_GAP = 2;
/** Within a turn the state is saved once in so many chunks. */
const CHUNKS_A_SAVE = 4;

/**
 * A prompt with its fixed split into chunks. The split affects the last digits of what follows, so two prompts share a
 * state bit for bit only if their splits agree. So each place of it depends only on the tokens before it and on marks up to a quarter of
 * a chunk after it, except for `SavePoints.upTo`: a prompt that goes on has the same places up to its last mark, unless the
 * continuation has a mark within TURN_GAP of it, as a reply of one token has whose end is a mark.
 */
export class PromptPlan {
  readonly tokens: Uint32Array;
  /** Where its chunks end, ascending; the last is the number of tokens. */
  readonly ends: readonly number[];
  /** In order. */
  readonly images: readonly PlacedImage[];
  /** Of the states that it may start from and that it makes. */
  readonly key: CacheKey;
  /** Of these ends, those at which the state is saved. */
  readonly saved: ReadonlySet<number>;

  /**
   * Each segment is split from its own start on into chunks of `chunk` tokens, the last of them shorter, and at marks, but for an
   * image that must be whole. Before a mark the last two share their tokens where the last one were too short, and a turn that
   * is too short, as a brief reply is, shares a chunk with the next. None is empty. `points` absent: the state is never saved.
   */
  constructor(prompt: Prompt, chunk: number, key: CacheKey, points?: SavePoints) {
    this.key = key;
    this.tokens = promptIds(prompt);
    this.images = imagesOf(prompt);
    const marked = points?.isMark && marks(this.tokens, points.isMark);
    const ends: number[] = [];
    const turns: number[] = [];
    const least = Math.ceil(LEAST_CHUNK * chunk);
    let start = 0;
    for (const segment of prompt) {
      const until = start + segment.tokens.length;
      if (segment.kind === 'image' && segment.whole) start = until - 1;
      for (const mark of marked ?? []) {
        if (mark < start || mark >= until) continue;
        while (mark > start + chunk) ends.push((start = mark < start + chunk + least ? mark - least : start + chunk));
        if (mark >= start + least) ends.push((start = mark));
        // Where a mark follows another one closely, the place of the earlier one counts for both.
        if (ends.at(-1) === start) turns.push(start);
      }
      for (let end = start + chunk; end < until; end += chunk) ends.push(end);
      if (until > start) ends.push(until);
      start = until;
    }
    const outside = this.images.length === 0 ? ends : ends.filter((end) => !this.#splitsImage(end));
    this.saved = new Set(points && savedAt(outside, turns, points, chunk));
    if (points && this.saved.has(points.upTo) && !ends.includes(points.upTo)) {
      const next = ends.findIndex((end) => end > points.upTo);
      ends.splice(next, 0, points.upTo);
    }
    this.ends = ends;
  }

  /** Whether an image is on both sides of a place. No state is reused from there. */
  #splitsImage(end: number): boolean {
    return this.images.some(({ at, image }) => at < end && end < at + image.tokens.length);
  }
}

/** Places of tokens that are marks; of those within TURN_GAP of the first of them, the last. */
function marks(tokens: Uint32Array, isMark: (token: number) => boolean): number[] {
  const found: number[] = [];
  let first = -Infinity;
  for (let at = 0; at < tokens.length; at++) {
    if (!isMark(tokens[at] ?? 0)) continue;
    if (at <= first + TURN_GAP) found.pop();
    else first = at;
    found.push(at);
  }
  return found;
}

/** Some of `ends`, and perhaps `upTo`. */
function savedAt(
  ends: readonly number[],
  turns: readonly number[],
  { upTo, exactly }: SavePoints,
  chunk: number,
): number[] {
  if (upTo <= 0) return [];
  if (turns.length === 0) return [...ends.filter((end) => end < upTo), upTo];
  const saved: number[] = [];
  for (const end of ends) {
    if (end > upTo) break;
    if (turns.includes(end) || end - (saved.at(-1) ?? 0) >= CHUNKS_A_SAVE * chunk) saved.push(end);
  }
  return exactly ? [...saved, upTo] : saved;
}

/** The progress of a sequence in a plan. */
export class PromptProgress {
  readonly #plan: PromptPlan;
  #position: number;
  /** Index of the first end past the position. */
  #next = 0;

  /** `keep`: leading tokens of the plan that are already in the sequence, fewer than all. */
  constructor(plan: PromptPlan, keep: number) {
    this.#plan = plan;
    this.#position = keep;
    this.#catchUp();
  }

  /** Tokens evaluated. */
  get position(): number {
    return this.#position;
  }

  /** Tokens still to be evaluated. */
  get left(): number {
    return this.#plan.tokens.length - this.#position;
  }

  /** Tokens up to the end of the current chunk; equal to `left` in the last one. */
  get chunk(): number {
    return (this.#plan.ends[this.#next] ?? this.#position) - this.#position;
  }

  /** The image that the next token is of. */
  get image(): PlacedImage | undefined {
    const at = this.#position;
    return this.#plan.images.find((each) => each.at <= at && at < each.at + each.image.tokens.length);
  }

  /** Whether the state is to be saved where it is. */
  get saves(): boolean {
    return this.#plan.saved.has(this.#position);
  }

  /** The next `count` tokens, which count as evaluated from now on. */
  take(count: number): Uint32Array {
    const tokens = this.#plan.tokens.subarray(this.#position, this.#position + count);
    this.#position += tokens.length;
    this.#catchUp();
    return tokens;
  }

  #catchUp(): void {
    const { ends } = this.#plan;
    while ((ends[this.#next] ?? Infinity) <= this.#position) this.#next += 1;
  }
}
