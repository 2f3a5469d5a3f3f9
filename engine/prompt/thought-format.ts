/**
 * Which marks a model puts around its thoughts, found from its chat template. That cannot be found by rendering alone: many
 * templates leave the thoughts of earlier turns out, and say nothing of how one begins. llama.cpp's parsers know the same formats
 * (common/parsers, common/chat-diff-analyzer.cpp).
 */
import { grammarAfterHead } from '../grammar/gbnf.js';
import { CALLED } from '../output/calls/expected-text.js';
import type { CallFormat, CallSyntax, ReplyFormat, ThoughtFormat } from '../protocol/reply-format.js';

/** The marks of one family of templates. */
interface ThoughtFamily extends Partial<Omit<ThoughtFormat, 'open' | 'starts' | 'ends'>> {
  /** Stands in the source of the family's templates and of no other's further down. */
  readonly sign: string;
  readonly start: string;
  /** What the model is known to write in place of the start. */
  readonly alsoStart?: readonly string[];
  readonly end: string;
  /** What stands in front of the start where a thought follows another. */
  readonly turn?: string;
  /** The model thinks only when an effort is asked for, and llama.cpp does not know that it can. */
  readonly onDemand?: boolean;
}

/** What gpt-oss-20b writes in front of a channel now and then. */
const STRAY = ['<|channel|>commentary', '<|channel|>commentary to=assistant'];
/** How gpt-oss names the type of an answer. */
const TYPES = ['', ' <|constrain|>json', '<|constrain|>json', ' json'];

/** In the order of asking. */
const FAMILIES: readonly ThoughtFamily[] = [
  {
    sign: '<|channel|>analysis',
    start: '<|channel|>analysis<|message|>',
    alsoStart: STRAY.map((stray) => `${stray}<|channel|>analysis<|message|>`),
    end: '<|end|>',
    turn: '<|start|>assistant',
    // A call's recipient may stand in front of the channel or after it.
    headers: ['', '<|start|>assistant'].flatMap((lead) => [
      ...['', ...STRAY].flatMap((stray) => TYPES.map((type) => `${lead}${stray}<|channel|>final${type}<|message|>`)),
      `${lead}<|channel|>commentary<|message|>`,
      `${lead}<|channel|>commentary`,
      `${lead}<|channel|>analysis`,
      ...(lead === '' ? [] : [lead]),
    ]),
    part: '<|end|>',
  },
  {
    sign: 'to=self<|message|>',
    start: 'to=self<|message|>',
    end: '<|eom|>',
    turn: '<|start|>assistant ',
    headers: ['to=user<|message|>', '<|start|>assistant to=user<|message|>'],
    // A call is a message of its own.
    part: '<|eom|>',
  },
  {
    sign: "open_tag('think')",
    start: '<|open|>think<|sep|>',
    end: '<|close|>think<|sep|>',
    implicitEnds: ['<|open|>response<|sep|>', '<|open|>tools<|sep|>'],
    headers: ['<|open|>response<|sep|>'],
    // Calls follow the response.
    part: '<|close|>response<|sep|>',
    close: '<|close|>message<|sep|>',
  },
  // Gemma's system turn has a `<|think|>` of its own, so it comes before Solar.
  { sign: '<|channel>thought', start: '<|channel>thought', end: '<channel|>', anywhere: true },
  {
    sign: '<|begin|>assistant<|think|>',
    start: '<|think|>',
    end: '<|end|>',
    turn: '<|begin|>assistant',
    headers: ['<|content|>', '<|begin|>assistant<|content|>', '<|begin|>assistant'],
    part: '<|end|>',
  },
  { sign: '[BEGIN FINAL RESPONSE]', start: 'Here are my reasoning steps:', end: '[BEGIN FINAL RESPONSE]' },
  { sign: '[/THINK]', start: '[THINK]', end: '[/THINK]' },
  { sign: '<|END_THINKING|>', start: '<|START_THINKING|>', end: '<|END_THINKING|>' },
  { sign: '<|inner_suffix|>', start: '<|inner_prefix|>', end: '<|inner_suffix|>', onDemand: true },
  // Hy3 makes its marks of two parts.
  { sign: "'</think{}>'", start: '<think:opensource>', end: '</think:opensource>', onDemand: true },
  { sign: '</seed:think>', start: '<seed:think>', end: '</seed:think>' },
  // A reply without a thought begins with the mark of one's end.
  { sign: '</mm:think>', start: '<mm:think>', end: '</mm:think>', headers: ['</mm:think>'] },
  {
    // Granite 3.3, whose template asks for these marks where the model is to think.
    sign: '<response></response>',
    start: '<think>',
    end: '</think>',
    wrap: ['<response>', '</response>'],
  },
  { sign: 'think>', start: '<think>', end: '</think>' },
];

/** How a thought is closed at its bound. Qwen's documentation has the sentence; other models continue after it too. */
const LAST_WORDS =
  '\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now.\n';

/** Marks that are control tokens. */
const CONTROL = /^<[|｜]/;

export class Thoughts {
  /** Whether the model thinks if the request does not mention it. */
  readonly unasked: boolean;
  readonly #format: Omit<ThoughtFormat, 'open'>;
  readonly #markers: readonly string[];
  /** As in {@link ThoughtFamily}. Absent: replies are not made of parts that begin so. */
  readonly #turn: string | undefined;

  /** `specials`: the vocabulary's special texts. */
  constructor(family: ThoughtFamily, specials: readonly string[]) {
    this.unasked = family.onDemand !== true;
    const { start, alsoStart = [], end, turn, implicitEnds = [], headers = [], close, part, anywhere, wrap } = family;
    const own = [start, ...alsoStart];
    const starts = turn === undefined ? own : [...own, ...own.map((each) => turn + each)];
    this.#turn = turn;
    this.#format = {
      starts,
      ends: [end],
      implicitEnds,
      headers,
      ...(close !== undefined && { close }),
      ...(part !== undefined && { part }),
      ...(anywhere && { anywhere }),
      ...(wrap && { wrap }),
    };
    const marks = [...starts, end, ...headers, ...(close === undefined ? [] : [close])];
    this.#markers = specials.filter((text) => text !== '' && marks.some((mark) => mark.includes(text)));
  }

  /** How to take apart the replies to a rendered prompt, whose end says whether it has begun the thought. */
  replyFormat(prompt: string): ReplyFormat & { readonly thought: ThoughtFormat } {
    return { thought: { open: this.#opened(prompt), ...this.#format }, markers: this.#markers };
  }

  /** `thought` of a reply that may call: calls' headers count as no text, and a call may begin within a thought. */
  withCalls(thought: ThoughtFormat, { syntax, functions, gbnf }: CallFormat): ThoughtFormat {
    const { lead } = syntax;
    const leads = lead === undefined ? [] : functions.map((name) => lead.replaceAll(CALLED, name));
    // Where a grammar constrains the whole reply, it takes calls only after the thought.
    const inThought = gbnf === undefined ? [] : this.#callsInThought(syntax, functions);
    const { headers, implicitEnds, ...rest } = thought;
    return {
      headers: [...headers, ...this.#callHeaders(leads)],
      implicitEnds: [...implicitEnds, ...inThought],
      ...rest,
    };
  }

  /** The headers of calls (CallSyntax.lead), with and without what begins another part of the reply. */
  #callHeaders(leads: readonly string[]): readonly string[] {
    const turn = this.#turn?.trimEnd() ?? '';
    return leads.flatMap((lead) => [lead.trimStart(), `${turn}${lead}`]);
  }

  /**
   * How calls begin that a model makes without ending its thought, as several do (llama.cpp issue 21118). None where each part of
   * a reply has a header, or where calls are JSON between plain tags: a thought there may contain the draft of a call.
   */
  #callsInThought(syntax: CallSyntax, functions: readonly string[]): readonly string[] {
    const { mark, open, arguments: notation } = syntax;
    if (this.#turn !== undefined || this.#format.implicitEnds.length > 0) return [];
    if (CONTROL.test(mark)) return [mark];
    if (notation === undefined && !mark.startsWith('[')) return [];
    // A thought may name a tag, and a function with it; with what is written between its name and its arguments, it is a call.
    const begins = new Set([open.trimStart(), open.replace(/\s+/g, '')]);
    const behind = behindName(syntax);
    return [...begins].flatMap((begin) => functions.flatMap((name) => behind.map((text) => begin + name + text)));
  }

  /**
   * `gbnf` with what the model writes after `prompt` in front of its content or calls: a thought, and a header where replies are
   * parts that have headers. A model of the other kind, if it begins its thoughts itself, may think only if an effort is named.
   */
  framed(
    gbnf: string,
    prompt: string,
    { effort, header }: { readonly effort: string | undefined; readonly header: boolean },
  ): string {
    const { starts, ends, headers } = this.#format;
    const [start = ''] = starts;
    const [end = ''] = ends;
    const turn = this.#turn ?? '';
    const lead = turn.endsWith(' ') ? ' ' : '';
    const asked = effort === undefined ? this.#turn !== undefined : effort !== 'none';
    // What follows a thought that the prompt began is constrained by other means (ReplyGrammar.after).
    const think = asked && !this.#opened(prompt) && !this.skipped(prompt);
    const thought = { start: lead + start, end, turn: turn.trimEnd() };
    const head = header && this.#turn !== undefined ? lead + (headers[0] ?? '') : '';
    return grammarAfterHead(gbnf, { header: head, ...(think && { thought }) });
  }

  /** What closes a thought at its bound. */
  get closing(): string {
    return `${LAST_WORDS}${this.#format.ends[0] ?? ''}${this.#turn === undefined ? '\n\n' : ''}`;
  }

  /** `gbnf` for what follows {@link closing}: with the beginning of the next part, where replies are made of parts, and its header. */
  behindClosing(gbnf: string, header: boolean): string {
    if (this.#turn === undefined) return gbnf;
    const lead = this.#turn.endsWith(' ') ? ' ' : '';
    const head = header ? lead + (this.#format.headers[0] ?? '') : '';
    return grammarAfterHead(gbnf, { header: this.#turn.trimEnd() + head });
  }

  /** The marks, where `source`, the template, looks for them in an assistant's content. */
  splitIn(source: string): { readonly start: string; readonly end: string } | undefined {
    const [start = ''] = this.#format.starts;
    const [end = ''] = this.#format.ends;
    return [`split('${end}'`, `split("${end}"`].some((call) => source.includes(call)) ? { start, end } : undefined;
  }

  /** A prompt's tail after which an answer can stand: a thought left open is closed. */
  closed(tail: string): string {
    return this.#opened(tail) ? `${tail}\n${this.#format.ends[0] ?? ''}\n\n` : tail;
  }

  /** A prompt's tail without the empty thought at its end; undefined if it ends with none. */
  withoutEmpty(tail: string): string | undefined {
    const end = tail.trimEnd();
    const mark = this.#format.ends.find((text) => end.endsWith(text));
    if (mark === undefined) return undefined;
    const begun = end.slice(0, end.length - mark.length).trimEnd();
    const start = this.#format.starts.find((text) => begun.endsWith(text));
    return start === undefined ? undefined : begun.slice(0, begun.length - start.length);
  }

  ends(text: string): boolean {
    return this.#format.ends.some((mark) => text.includes(mark));
  }

  /** Whether a prompt ends with a thought that is over: the model is to answer at once. */
  skipped(prompt: string): boolean {
    const end = prompt.trimEnd();
    return this.#format.ends.some((mark) => end.endsWith(mark));
  }

  #opened(prompt: string): boolean {
    const end = prompt.trimEnd();
    return this.#format.starts.some((start) => end.endsWith(start));
  }
}

/** What may follow the name of a function that is called: the text before its arguments, or the first of them, or the call's end. */
function behindName({ between, close, arguments: notation }: CallSyntax): readonly string[] {
  if (between.trim() !== '') return [between.trimEnd()];
  const first = notation !== undefined && 'open' in notation ? notation.open : '';
  return [first, close].flatMap((text) => (text.trim() === '' ? [] : [text.trim(), `\n${text.trim()}`]));
}

/** Undefined if the template's model does not think, or in no way that is known. */
export function thoughtsOf(source: string, specials: readonly string[]): Thoughts | undefined {
  const family = FAMILIES.find(({ sign }) => source.includes(sign));
  return family && new Thoughts(family, specials);
}
