import { MOST_STEP_TOKENS, type Decoder, type Sampler, type Speculated } from './decoder.js';
import { callGrammar } from '../grammar/calls.js';
import { grammarAfter } from '../grammar/gbnf.js';
import { MAX_CALLS } from '../output/calls/call-parser.js';
import type { CallConstraint } from '../output/calls/call-text.js';
import { ReplyText, type ReplyParts } from '../output/reply-text.js';
import type { CallFormat, ThoughtLimit } from '../protocol/reply-format.js';
import { REQUEST_AHEAD_TOKENS, type FinishReason, type Output, type ReplyLimit } from '../protocol/jobs.js';
import type { GenerateJob } from '../protocol/jobs.js';
import type { ModelTokens, TokensAhead } from './job.js';
import { SequenceTokens } from './state-store.js';

const NOTHING: ReplyParts = { reasoning: '', content: '', calls: [] };

interface End {
  readonly reason: FinishReason;
  readonly matchedStop?: string | number;
}

/** One reply of a chat completion: its sampler, its text so far, and its end. Does not know its sequence. */
export class Reply {
  readonly sampler: Sampler;
  /** Its tokens, until it is disposed. */
  readonly all = new SequenceTokens();
  readonly #id: number;
  readonly #maxTokens: number;
  readonly #speculates: boolean;
  readonly #choice: number;
  readonly #model: ModelTokens;
  readonly #text: ReplyText;
  /** Control tokens that have text in this reply. */
  readonly #markers: ReadonlySet<string>;
  /** Calls that end the reply. */
  readonly #maxCalls: number;
  /** Kept if a call may have to be constrained from its mark on. */
  readonly #recent: RecentTokens | undefined;
  readonly #thoughtBound: ThoughtBound | undefined;
  /** Completion tokens sampled, the end token among them. */
  #tokens = 0;
  /** Of these, those up to the end of the last thought, its marks among them. */
  #reasoningTokens = 0;
  /** Of its tokens, how many were drafted, and how many of these came. */
  #drafted = 0;
  #accepted = 0;
  #last = 0;
  readonly #before: Output[] = [];
  #over = false;
  #limit: ReplyLimit;
  /** It has asked for more than its limit. */
  #asked = false;
  /** Settles with the limit for which it waits. */
  #raised: Promise<void> | undefined;
  #settle = (): void => undefined;

  /** `draftFrom`: as {@link Sampling} has it. `had`: tokens that it goes on after, whose outputs come with those of the next one. */
  constructor(
    id: number,
    choice: number,
    job: GenerateJob,
    model: ModelTokens,
    decoder: Pick<Decoder, 'sampler'>,
    draftFrom?: Uint32Array,
    had: Uint32Array = new Uint32Array(0),
  ) {
    const { seed, ...asked } = job;
    const markers = job.format && { markers: job.format.markers };
    this.sampler = decoder.sampler({
      // Not the random numbers of those that it had.
      seed: (seed + choice + had.length) >>> 0,
      ...asked,
      ...markers,
      ...(draftFrom && { draftFrom }),
    });
    const grammar = job.format?.grammar;
    if (grammar) {
      this.sampler.constrain(
        grammar.after === undefined ? grammar.gbnf : grammarAfter(grammar.after, grammar.gbnf),
        [...had],
        grammar.stacks,
      );
    }
    this.#id = id;
    this.#maxTokens = job.maxTokens;
    this.#speculates = draftFrom !== undefined;
    this.#choice = choice;
    this.#limit = { tokens: job.limit ?? job.maxTokens, last: job.limit === undefined };
    this.#model = model;
    const { format } = job;
    this.#markers = new Set(format?.markers);
    this.#maxCalls = format?.calls?.single === true ? 1 : MAX_CALLS;
    this.#recent = format?.calls?.gbnf === undefined ? undefined : new RecentTokens();
    this.#thoughtBound = format?.thoughtLimit && new ThoughtBound(format.thoughtLimit, this.sampler);
    this.#text = new ReplyText(job.stops, format, format?.calls && this.#callConstraint(format.calls));
    for (const token of had) this.accept(token, this.#before);
  }

  /** The token sampled last: the next one to be evaluated. */
  get last(): number {
    return this.#last;
  }

  /** Tokens that may be generated before a bound takes effect: all that are left, also of a thought. */
  get ahead(): TokensAhead {
    const left = this.#limit.tokens - this.#tokens;
    const ofThought = this.#thoughtBound?.ahead(this.#text.mayThink) ?? Infinity;
    return { tokens: Math.max(1, Math.min(left, ofThought)), moves: !this.#limit.last || ofThought < left };
  }

  /**
   * Tokens that it must be allowed to have before its next step. A step with drafts may give many, and fewer would be drafted just before a
   * limit that is raised a moment later: the number of drafts, which moves last digits, is not to follow from that moment. The first
   * token is drafted for none.
   */
  get #needed(): number {
    return this.#speculates && this.#tokens > 0 ? Math.min(MOST_STEP_TOKENS, this.#maxTokens - this.#tokens) : 1;
  }

  /** Whether each of its tokens may begin a call that constrains the next one. */
  get stepwise(): boolean {
    return this.#recent !== undefined;
  }

  /**
   * Tokens of its text, if it is over and a next prompt is likely to repeat them all: it has neither a thought nor a call, and was not cut
   * at a stop string.
   */
  get repeatableTokens(): number | undefined {
    if (!this.#over || this.#reasoningTokens > 0 || this.#text.calls > 0) return undefined;
    if (typeof this.#text.matchedStop === 'string') return undefined;
    return this.#tokens - (this.#model.isEnd(this.#last) ? 1 : 0);
  }

  /** Settles when its next token can be chosen: {@link Sampler.pending}, or it waits for a limit. */
  get pending(): Promise<void> | undefined {
    return this.sampler.pending ?? (this.waits(this.#needed) ? this.#limitCome() : undefined);
  }

  /** Whether it may have `tokens` more tokens only with another limit, for which it waits. */
  waits(tokens: number): boolean {
    return !this.#over && !this.#limit.last && this.#tokens + tokens > this.#limit.tokens;
  }

  /** Tokens that it may have. */
  get most(): number {
    return this.#limit.tokens;
  }

  /** Sets how many tokens it may have. Returns whether it waited for that. */
  limit(limit: ReplyLimit): boolean {
    const waited = this.waits(this.#needed);
    this.#limit = limit;
    this.#asked = false;
    this.#settle();
    this.#raised = undefined;
    return waited;
  }

  /** Ends it, if it may not have `tokens` more tokens; asks for more, where it waits for them. Returns whether it ended so. */
  endLimited(out: Output[], tokens = 1): boolean {
    if (this.#needed > 1 && this.waits(this.#needed)) this.ask(out, 0);
    if (this.#over || !this.#limit.last || this.#tokens + tokens <= this.#limit.tokens) return false;
    this.#add(NOTHING, { reason: 'length' }, out);
    return true;
  }

  /** Asks for a limit with which it may have `tokens` more tokens, once for each limit. */
  ask(out: Output[], tokens: number): void {
    if (this.#asked || this.#limit.last) return;
    this.#asked = true;
    out.push({ id: this.#id, kind: 'needsTokens', choice: this.#choice, tokens: this.#tokens + tokens });
  }

  #limitCome(): Promise<void> {
    return (this.#raised ??= new Promise((settle) => (this.#settle = settle)));
  }

  /** Completion tokens so far. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Its `finished` output is complete. */
  get over(): boolean {
    return this.#over;
  }

  /**
   * Adds the sampled token, and new outputs to `out`, including the end. `late`: tokens before it that are known only by
   * their number, and the text of all of them; an external server reports those of an unfinished character so.
   */
  accept(sampled: number, out: Output[], late?: { readonly tokens: number; readonly text: string }): void {
    const token = this.#thoughtBound?.next(sampled) ?? sampled;
    this.#last = token;
    this.all.append(Uint32Array.of(token), false);
    this.#tokens += 1 + (late?.tokens ?? 0);
    let end: End | undefined;
    let piece = NOTHING;
    const thinking = this.#text.isThinking();
    if (this.#model.isEnd(token)) {
      end = { reason: 'stop', matchedStop: token };
    } else {
      const bytes = late === undefined ? this.#bytes(token) : Buffer.from(late.text);
      this.#recent?.push(token, bytes);
      piece = this.#text.push(bytes);
      if (this.#text.calls >= this.#maxCalls) end = { reason: 'tool_calls' };
      else if (this.#text.matchedStop !== undefined) end = { reason: 'stop', matchedStop: this.#text.matchedStop };
      else if (this.#limit.last && this.#tokens >= this.#limit.tokens) end = { reason: 'length' };
    }
    if (thinking || this.#text.isThinking()) this.#reasoningTokens = this.#tokens;
    if (!end) this.#thoughtBound?.accepted(this.#text.isThinking());
    this.#add(piece, end, out);
    if (!end && this.#limit.tokens - this.#tokens <= REQUEST_AHEAD_TOKENS) this.ask(out, 0);
  }

  /** Counts the drafts of the steps whose tokens come next. */
  speculated({ drafted, accepted }: Speculated): void {
    this.#drafted += drafted;
    this.#accepted += accepted;
  }

  /** An external server has ended the reply, after `tokens` in all. */
  end(reason: 'stop' | 'length', tokens: number, out: Output[]): void {
    this.#tokens = tokens;
    this.#add(NOTHING, { reason }, out);
  }

  #add(parsed: ReplyParts, ended: End | undefined, out: Output[]): void {
    if (out !== this.#before) out.push(...this.#before.splice(0));
    let piece = parsed;
    let end = ended;
    if (end) {
      const last = this.#text.end();
      piece = {
        reasoning: piece.reasoning + last.reasoning,
        content: piece.content + last.content,
        calls: [...piece.calls, ...last.calls],
      };
      // What was held back, such as white space before what may be a call, may end with a stop.
      const { matchedStop } = this.#text;
      if (end.reason === 'length' && matchedStop !== undefined) end = { reason: 'stop', matchedStop };
    }
    this.#emit(piece, out);
    if (!end) return;
    const calls = end.reason === 'stop' && this.#text.calls > 0 && { reason: 'tool_calls' as const };
    this.#over = true;
    const counts = { completionTokens: this.#tokens, reasoningTokens: this.#reasoningTokens };
    const drafts = this.#drafted > 0 && { draftedTokens: this.#drafted, acceptedTokens: this.#accepted };
    out.push({ id: this.#id, choice: this.#choice, kind: 'finished', ...end, ...calls, ...counts, ...drafts });
  }

  #emit({ reasoning, content, calls }: ReplyParts, out: Output[]): void {
    const common = { id: this.#id, choice: this.#choice, tokens: this.#tokens };
    if (reasoning !== '') out.push({ kind: 'piece', channel: 'reasoning', text: reasoning, ...common });
    if (content !== '') out.push({ kind: 'piece', channel: 'content', text: content, ...common });
    for (const call of calls) out.push({ kind: 'call', ...common, ...call });
  }

  /** Constrains a call from the token in which its text begins; absent if the reply's own grammar does. */
  #callConstraint({ gbnf, stacks }: CallFormat): CallConstraint | undefined {
    if (gbnf === undefined) return undefined;
    return {
      begin: (text) => {
        const since = this.#recent?.since(text);
        if (since === undefined) return false;
        return this.sampler.constrain(callGrammar(gbnf, { before: since.before }), since.tokens, stacks);
      },
      end: () => this.sampler.release(),
    };
  }

  #bytes(token: number): Uint8Array {
    if (this.#markers.size > 0) {
      const name = this.#model.control(token);
      if (name !== undefined && this.#markers.has(name)) return Buffer.from(name);
    }
    return this.#model.bytes(token);
  }

  /** Disposes the sampler. Idempotent. */
  dispose(): void {
    this.all.wipe();
    this.sampler.dispose();
  }
}

/**
 * Holds the thought of a reply to its bound. At the bound the thought is closed by tokens that take the place of the sampled ones: the
 * sequence holds no token before the next step evaluates it.
 */
class ThoughtBound {
  readonly #limit: ThoughtLimit;
  readonly #sampler: Sampler;
  /** Tokens of thought until the bound. */
  #left: number;
  /** Of `closing`, the tokens that have taken their place; undefined if no thought is being closed. */
  #closed: number | undefined;

  constructor(limit: ThoughtLimit, sampler: Sampler) {
    this.#limit = limit;
    this.#sampler = sampler;
    this.#left = limit.tokens;
  }

  /** Tokens after which a thought may have to be closed. `mayThink`: whether the text may be within one, now or later. */
  ahead(mayThink: boolean): number {
    return mayThink || this.#closed !== undefined ? Math.max(1, this.#left) : Infinity;
  }

  /** The token in place of the sampled one. */
  next(sampled: number): number {
    return this.#closed === undefined ? sampled : (this.#limit.closing[this.#closed++] ?? sampled);
  }

  /** A token was accepted. `thinking`: the text then ends within a thought. */
  accepted(thinking: boolean): void {
    const { closing, grammar } = this.#limit;
    if (this.#closed === closing.length) {
      this.#closed = undefined;
      if (grammar) this.#sampler.constrain(grammar.gbnf, [], grammar.stacks);
    } else if (this.#closed === undefined && thinking) {
      this.#left -= 1;
      if (this.#left > 0) return;
      this.#closed = 0;
      this.#sampler.release();
    }
  }
}

/** The least number of bytes kept: more than a call's text before its arguments. */
const KEPT_BYTES = 1024;

/** The last tokens of a reply with their bytes, to find the tokens that some text came from. */
export class RecentTokens {
  readonly #kept: { readonly token: number; readonly bytes: Uint8Array }[] = [];
  #bytes = 0;

  push(token: number, bytes: Uint8Array): void {
    this.#kept.push({ token, bytes });
    this.#bytes += bytes.length;
    for (let first = this.#kept[0]; first && this.#bytes - first.bytes.length >= KEPT_BYTES; first = this.#kept[0]) {
      this.#bytes -= first.bytes.length;
      this.#kept.shift();
    }
  }

  /** The tokens from the text's last occurrence on, and the text of the first one before it; undefined if it was not found. */
  since(text: string): { readonly tokens: readonly number[]; readonly before: string } | undefined {
    const begin = Buffer.concat(this.#kept.map(({ bytes }) => bytes)).lastIndexOf(text);
    if (begin < 0) return undefined;
    let end = 0;
    const first = this.#kept.findIndex(({ bytes }) => (end += bytes.length) > begin);
    const kept = this.#kept.slice(first);
    const bytes = kept[0]?.bytes ?? new Uint8Array(0);
    const before = Buffer.from(bytes.subarray(0, begin - (end - bytes.length))).toString();
    return { tokens: kept.map(({ token }) => token), before };
  }
}
