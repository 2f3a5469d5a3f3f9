/**
 * Examples as training rows. The server's own code renders and tokenizes them, so the model trains on the very tokens that it
 * will be asked with. A decision's questions share their input: group 0 is the input, each question a group that sees group 0
 * and itself.
 */
import { makeDecisionPrompt, type DecisionPrompt } from '../../prompt/decision-prompt.js';
import { chatPrompt, type ChatPrompt, type PromptParts } from '../../prompt/chat-prompt.js';
import { makePromptParts } from '../../prompt/prompt-parts.js';
import type { Vocabulary } from '../../prompt/tokens.js';
import { END_OF_TURN } from '../vocabulary-own.js';
import type { ChatExample, DecisionExample, Example } from './corpus/example.js';

/** Numbers in a row: token, the token to come, the loss's weight in hundredths, group, position. 16 bits each. */
export const ROW = 5;

const LABEL_WEIGHT = 100;
const REPLY_WEIGHT = 40;
/** Prompts count a little: that is how words that mean the same come to lie together. */
const PROMPT_WEIGHT = 2;
/** Tokens at a question's end that are always the same. */
const CONSTANT_TAIL = 14;
const LONGEST = 8192;

export class RowMaker {
  readonly #parts: PromptParts;
  readonly #decisions: DecisionPrompt;
  readonly #vocabulary: Vocabulary;
  readonly #end: number;
  readonly #constantHead: number;

  /** Throws when the vocabulary cannot be used as the server would. */
  constructor(vocabulary: Vocabulary) {
    const made = makePromptParts(vocabulary);
    if (made.kind === 'bad') throw new Error(made.problem);
    const decision = makeDecisionPrompt(made.parts);
    if (decision.kind === 'bad') throw new Error(decision.problem);
    this.#parts = made.parts;
    this.#decisions = decision.prompt;
    this.#vocabulary = vocabulary;
    this.#end = vocabulary.tokenize(END_OF_TURN, true)[0] ?? 0;
    const probe = decision.prompt.tokenize('x', []);
    this.#constantHead = probe.kind === 'tokens' ? probe.input.length - 1 : 0;
  }

  /** The rows of one example, `ROW` numbers each. Throws when it cannot be rendered. */
  rows(example: Example): Uint16Array {
    return example.kind === 'decision' ? this.#decision(example) : this.#chat(example);
  }

  /** A chat's prompt, and how its reply is held, as the server makes them. */
  prompt({ conversation, reasoningEffort, jsonObject, topic }: ChatExample): ChatPrompt & { readonly kind: 'tokens' } {
    const tools = (conversation.tools?.length ?? 0) > 0;
    const prompt = chatPrompt(
      this.#parts,
      conversation,
      {
        addGenerationPrompt: true,
        ...(reasoningEffort !== undefined && { reasoningEffort }),
        ...(tools && { calls: { required: false, parallel: true } }),
        ...(jsonObject !== undefined && { jsonObject }),
      },
      LONGEST,
    );
    if (prompt.kind !== 'tokens') throw new Error(`${topic}: not rendered (${prompt.kind})`);
    return prompt;
  }

  #chat(example: ChatExample): Uint16Array {
    const prompt = this.prompt(example).tokens;
    const reply = this.#vocabulary.tokenize(example.reply, true);
    const tokens = [...prompt, ...reply, this.#end];
    const rows = new Uint16Array((tokens.length - 1) * ROW);
    for (let at = 0; at + 1 < tokens.length; at++) {
      const weight = at + 1 >= prompt.length ? REPLY_WEIGHT : PROMPT_WEIGHT;
      rows.set([tokens[at] ?? 0, tokens[at + 1] ?? 0, weight, 0, at], at * ROW);
    }
    return rows;
  }

  #decision({ input, questions, topic }: DecisionExample): Uint16Array {
    const made = this.#decisions.tokenize(input, questions);
    if (made.kind !== 'tokens') throw new Error(`${topic}: too long`);
    const rows: number[] = [];
    const head = made.input;
    head.forEach((token, at) => {
      const weight = at >= this.#constantHead && at + 1 < head.length ? PROMPT_WEIGHT : 0;
      rows.push(token, head[at + 1] ?? 0, weight, 0, at);
    });
    made.questions.forEach(({ tail, labels }, question) => {
      const label = labels[questions[question]?.answer ?? -1];
      if (label === undefined) throw new Error(`${topic}: no such answer`);
      tail.forEach((token, at) => {
        const last = at + 1 === tail.length;
        const weight = last ? LABEL_WEIGHT : at < tail.length - CONSTANT_TAIL ? PROMPT_WEIGHT : 0;
        rows.push(token, last ? label : (tail[at + 1] ?? 0), weight, question + 1, head.length + at);
      });
    });
    return Uint16Array.from(rows);
  }
}
