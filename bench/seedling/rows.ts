/**
 * Examples as training rows. The server’s own code renders and tokenizes them, so the model trains on exactly the
 * tokens of its later prompts. A decision’s questions share their input: group 0 is the input, each question a group
 * that sees group 0 and itself.
 */
import { makeDecisionPrompt, type DecisionPrompt } from '../../engine/prompt/decision-prompt.js';
import { chatPrompt, type ChatPrompt, type PromptParts } from '../../engine/prompt/chat-prompt.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { END_OF_TURN } from '../models/vocabulary-own.js';
import type { Asked, ChatExample, DecisionExample, Example } from './corpus/example.js';
import { promptIds } from '../../engine/protocol/prompt.js';

/** Numbers in a row: token, next token, the loss’s weight in hundredths, group, position. 16 bits each. */
export const ROW = 5;

const LABEL_WEIGHT = 100;
/** Steps to a label: see `steps`. Below a label's weight, which training counts apart. */
const FOUND_WEIGHT = 99;
const OPTION_WEIGHT = 50;
const REPLY_WEIGHT = 40;
/** Prompts count a little, so that words with the same meaning get similar embeddings. */
const PROMPT_WEIGHT = 2;
/** Tokens at a question's end that are always the same. */
const CONSTANT_TAIL = 14;
/** Tokens of an option's line before its text: the line's end before it, the label, the bracket. */
const LABEL_TOKENS = 3;
const LONGEST = 8192;

export class RowMaker {
  readonly #parts: PromptParts;
  readonly #decisions: DecisionPrompt;
  readonly #vocabulary: Vocabulary;
  readonly #end: number;
  readonly #lineEnd: number;
  readonly #heading: number;
  readonly #yesNo: Uint32Array;
  readonly #constantHead: number;

  /** Throws if the vocabulary cannot be used as the server would. */
  constructor(vocabulary: Vocabulary) {
    const made = makePromptParts(vocabulary);
    if (made.kind === 'bad') throw new Error(made.problem);
    const decision = makeDecisionPrompt(made.parts);
    if (decision.kind === 'bad') throw new Error(decision.problem);
    this.#parts = made.parts;
    this.#decisions = decision.prompt;
    this.#vocabulary = vocabulary;
    this.#end = vocabulary.tokenize(END_OF_TURN, true)[0] ?? 0;
    this.#lineEnd = vocabulary.tokenize('\n', false)[0] ?? 0;
    this.#heading = vocabulary.tokenize('Labels:', false)[0] ?? 0;
    this.#yesNo = decision.prompt.labels.yes_no.tokens;
    const probe = decision.prompt.tokenize('x', []);
    this.#constantHead = probe.kind === 'tokens' ? probe.input.length - 1 : 0;
  }

  /** The rows of one example, `ROW` numbers each. Throws if it cannot be rendered. */
  rows(example: Example): Uint16Array {
    return example.kind === 'decision' ? this.#decision(example) : this.#chat(example);
  }

  /** A chat’s prompt, and its reply’s constraint, as the server makes them. */
  prompt({ conversation, reasoningEffort, jsonObject, topic }: ChatExample): ChatPrompt & { readonly kind: 'prompt' } {
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
    if (prompt.kind !== 'prompt') throw new Error(`${topic}: not rendered (${prompt.kind})`);
    return prompt;
  }

  #chat(example: ChatExample): Uint16Array {
    const prompt = promptIds(this.prompt(example).prompt);
    const reply = this.#vocabulary.tokenize(example.reply, true);
    const tokens = [...prompt, ...reply, this.#end];
    const rows = new Uint16Array((tokens.length - 1) * ROW);
    for (let at = 0; at + 1 < tokens.length; at++) {
      // The first token of a reply decides which reply it is: a call, an answer, or that there is none.
      const first = at + 1 === prompt.length;
      const weight = first ? FOUND_WEIGHT : at + 1 > prompt.length ? REPLY_WEIGHT : PROMPT_WEIGHT;
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
      const asked = questions[question];
      const label = labels[asked?.answer ?? -1];
      if (asked === undefined || label === undefined) throw new Error(`${topic}: no such answer`);
      const steps = this.#steps(asked, tail, label);
      tail.forEach((token, at) => {
        const last = at + 1 === tail.length;
        const plain = at < tail.length - CONSTANT_TAIL ? PROMPT_WEIGHT : 0;
        const [target, weight] = last ? [label, LABEL_WEIGHT] : (steps.get(at) ?? [tail[at + 1] ?? 0, plain]);
        rows.push(token, target, weight, question + 1, head.length + at);
      });
    });
    return Uint16Array.from(rows);
  }

  /**
   * What the model should know before the label, by place in the question, each with its weight: at the question’s end,
   * yes or no, or the first word of the answer; at an option’s end, whether that option is the one. A label alone
   * contains too little information: without these steps the model learned no look-ups. Prompts are never continued
   * there, so other tokens than the real next ones do no harm.
   */
  #steps({ type, answer, answers }: Asked, tail: Uint32Array, label: number): Map<number, [number, number]> {
    const steps = new Map<number, [number, number]>();
    const heading = tail.indexOf(this.#heading);
    if (type === 'yes_no') return steps.set(heading - 1, [label, FOUND_WEIGHT]);
    const close = tail.length - CONSTANT_TAIL - 1;
    const [first = 0, ...ends] = [...tail.keys()].filter(
      (at) => at === close || (at > heading && at < close && tail[at] === this.#lineEnd),
    );
    // Tokens that join a line’s end with a mark before it: not in this corpus.
    if (ends.length !== answers.length) throw new Error(`${answers.join()}: lines cannot be distinguished`);
    ends.forEach((at, option) => steps.set(at, [this.#yesNo[option === answer ? 0 : 1] ?? 0, OPTION_WEIGHT]));
    const start = [first, ...ends][answer] ?? 0;
    if (type === 'choice') steps.set(heading - 1, [tail[start + LABEL_TOKENS] ?? 0, FOUND_WEIGHT]);
    return steps;
  }
}
