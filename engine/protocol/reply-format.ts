/** How a reply is constrained and parsed: the model's own texts around its thoughts and calls. */

/** The form of a reply, as far as it depends on the prompt. */
export interface ReplyFormat {
  readonly thought?: ThoughtFormat;
  /** Bounds the thought. Only with `thought`. */
  readonly thoughtLimit?: ThoughtLimit;
  /** Absent: the reply has no calls, and text that looks like one is content. */
  readonly calls?: CallFormat;
  readonly grammar?: ReplyGrammar;
  /** Control tokens whose names count as text in this reply, because marks contain them. All others have no text. */
  readonly markers: readonly string[];
}

export interface ReplyGrammar {
  /** GBNF made by engine/grammar, its root rule on the first line. */
  readonly gbnf: string;
  /** The most places in the grammar that a text can be at simultaneously: the cost per token. Absent: few. */
  readonly stacks?: number;
  /**
   * The reply is unconstrained up to this text, which must occur, and constrained after it (grammarAfter). Absent: from
   * the start.
   */
  readonly after?: string;
}

/** A bound of a reply's thought. A thought that reaches it is closed: its next tokens are `closing`, whatever the model samples. */
export interface ThoughtLimit {
  /** Tokens of thought, at least 1. */
  readonly tokens: number;
  /** A sentence and the mark that ends the thought. */
  readonly closing: readonly number[];
  /** Constrains what follows `closing`, in place of the reply's own grammar; absent: the reply has none. */
  readonly grammar?: Omit<ReplyGrammar, 'after'>;
}

/**
 * How a model writes calls, as the texts around their parts:
 *
 *     open NAME between ARGUMENTS ( next NAME between ARGUMENTS )* close
 *
 * ARGUMENTS is one JSON object unless `arguments` says otherwise. White space in the texts counts for nothing, U+0000 stands
 * for an id of letters and digits. U+0001 in `lead` and `next` stands for the name of a function.
 */
export interface CallSyntax {
  /**
   * The beginning of `open`, which occurs in no other text of the model. '': calls are recognized by `{` at the reply's
   * start.
   */
  readonly mark: string;
  /** The mark may stand in other text too: only once all of `open` does, it is a call. */
  readonly ambiguous?: true;
  readonly open: string;
  /**
   * A reply consists of parts, each after `open`, its recipient and a line end. The recipient is a function or this one, which
   * stands for the user. The prompt ends with the first part's `open`. `next` is equal to `open`, and `close` is empty.
   */
  readonly userRecipient?: string;
  /** A tool of the model's own that it calls, alone and without arguments, in front of an answer that is no call. */
  readonly answerTool?: string;
  /** A header that the model writes in front of `open`, and that counts as no text. */
  readonly lead?: string;
  /** A header that the model writes in front of what is no call, and that counts as no text. */
  readonly answerLead?: string;
  /**
   * What the model is known to write in place of `open`, whatever its template says. If it does not begin with the mark, it is a call
   * once `between` follows the name of a function.
   */
  readonly alsoOpen?: readonly string[];
  readonly between: string;
  /** What the model is known to write in place of `between`. */
  readonly alsoBetween?: readonly string[];
  /** Absent: a reply has one call at most. */
  readonly next?: string;
  readonly close: string;
  /**
   * The text before an answer that is no call and is wrapped in a JSON string. Absent: such an answer is not wrapped.
   * Not with `alsoOpen`.
   */
  readonly answer?: string;
  /** How ARGUMENTS are written. Absent: as one JSON object. */
  readonly arguments?: TaggedArguments | NestedArguments | BareArguments | KeywordArguments;
}

/** The types of JSON Schema. A value is of `integer` or `number`, never of both. */
export type ValueType = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null';

/**
 * Arguments that are written one by one, any number of them:
 *
 *     open NAME between VALUE close
 *
 * VALUE is JSON, but for strings, which stand as they are, without quotes and escapes, up to `close`. One line end that
 * `between` ends with, or `close` begins with, belongs to neither.
 */
export interface TaggedArguments {
  readonly kind: 'tagged';
  readonly open: string;
  /** Some formats write the value's type here. */
  readonly between: Readonly<Record<Exclude<ValueType, 'integer'>, string>>;
  readonly close: string;
  /** A string may stand between `<![CDATA[` and `]]>`, which are no part of it. */
  readonly cdata?: true;
}

/**
 * Arguments that are written as nested elements, one for each:
 *
 *     prefix<NAME> VALUE prefix</NAME>
 *
 * VALUE is an element for each member of an object, an element called `item` for each of an array's items, a string as it stands,
 * without quotes and escapes, or another value's JSON.
 */
export interface NestedArguments {
  readonly kind: 'nested';
  /** Stands in front of each tag, and in no string. */
  readonly prefix: string;
}

/** Arguments that are one object of keys without quotes, and strings, without escapes, between two `quote`s. */
export interface BareArguments {
  readonly kind: 'bare';
  readonly quote: string;
}

/** Arguments as a call in Python has them: `KEY=VALUE`, parted by commas. VALUE is JSON, or a literal of Python. */
export interface KeywordArguments {
  readonly kind: 'keywords';
}

/** Numbers, booleans or null that a value may be. */
export interface ScalarForm {
  readonly types: readonly ValueType[];
  /** The only ones, as JSON texts. */
  readonly values?: readonly string[];
  /** Bounds of numbers, and whether these are outside themselves. Absent: none. */
  readonly least?: number;
  readonly aboveLeast?: boolean;
  readonly most?: number;
  readonly belowMost?: boolean;
  /** Each divides the number. */
  readonly steps?: readonly number[];
}

/** Whether a number is within these bounds and a multiple of each step. */
export function isWithin(
  value: number,
  { least, aboveLeast, most, belowMost, steps = [] }: Partial<ScalarForm>,
): boolean {
  if (least !== undefined && (aboveLeast === true ? value <= least : value < least)) return false;
  if (most !== undefined && (belowMost === true ? value >= most : value > most)) return false;
  // As near to whole as doubles of this size are.
  return steps.every((step) => Math.abs(value / step - Math.round(value / step)) <= 1e-9 * Math.abs(value / step));
}

/** What a value may be. Where strings have no quotes, the reader of arguments decides by it whether a text is a string or JSON. */
export interface ValueTypes {
  readonly types: readonly ValueType[];
  /** The only strings, numbers, booleans and null that it may be, as JSON texts. Absent: any of `types`. */
  readonly values?: readonly string[];
  /** Of a value that may be a string too: one of these, where not any of `types`. */
  readonly scalars?: readonly ScalarForm[];
}

/** What is within an object or an array, as numbers in one list of {@link ValueNode}. */
export interface NodeParts {
  /** An object's members by their names, or an array's first items by their places. */
  readonly named?: Readonly<Record<string, number>>;
  /** All others. Absent: there are none. */
  readonly others?: number;
}

/** What a value of tagged or nested arguments may be. What is within a tagged value is JSON, and not described. */
export interface ValueNode extends ValueTypes {
  /** Each object that it may be. */
  readonly objects?: readonly NodeParts[];
  /** Each array that it may be. */
  readonly arrays?: readonly NodeParts[];
  /** What an element with nothing in it is. Absent: a string, if it may be one. */
  readonly empty?: 'object' | 'array';
}

/** The calls that a reply may contain. */
export interface CallFormat {
  readonly syntax: CallSyntax;
  /** Names that may be called, at least one. */
  readonly functions: readonly string[];
  /**
   * What the arguments of each of `functions` may be, in that order: the first value of a list is all arguments. Absent unless they
   * are tagged or nested.
   */
  readonly values?: readonly (readonly ValueNode[])[];
  /** One call at most; the reply ends with it. */
  readonly single: boolean;
  /**
   * The grammar from a call's mark to the calls' end: GBNF rules whose start is `calls`, without a `root`. Absent: the
   * reply's own grammar constrains all of it.
   */
  readonly gbnf?: string;
  /** As {@link ReplyGrammar.stacks}, of these rules. */
  readonly stacks?: number;
}

/**
 * How a thought at the start of a reply is separated from its content. No mark is empty or begins with white space.
 * White space before and after a mark, and between a thought and the content, is dropped.
 */
export interface ThoughtFormat {
  /** The prompt has already begun the thought: the reply's first text is thought. */
  readonly open: boolean;
  readonly starts: readonly string[];
  readonly ends: readonly string[];
  /** Texts that end a thought which was not ended properly, and are themselves content (the opening of a tool call). */
  readonly implicitEnds: readonly string[];
  /** Texts that the format puts before the content, with or without a thought before them; dropped. */
  readonly headers: readonly string[];
  /** The content ends here, and the text after it is dropped; absent: at the reply's end. */
  readonly close?: string;
  /** A part of the content ends here, and a thought, a header or more content follows. */
  readonly part?: string;
  /** A thought may begin within the content too, and an end mark there that ends none is dropped. */
  readonly anywhere?: true;
  /** After a thought the content stands between these two, which are dropped. */
  readonly wrap?: readonly [begin: string, end: string];
}
