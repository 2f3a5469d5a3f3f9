import { makeDecisionPrompt, type DecisionPrompt, type Question } from '../../engine/prompt/decision-prompt.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { EngineDriver } from '../support/engine-driver.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const CONTEXT = 8192;

export interface Answered {
  readonly probabilities: readonly number[];
  readonly labelMass: number;
}

/**
 * Decisions of one model, rendered and scored as the server does it: isolated, at temperature 1. Its owner closes it.
 */
export class Asker {
  readonly #vocabulary: Vocabulary;
  readonly #prompt: DecisionPrompt;
  readonly #engine: EngineDriver;

  private constructor(vocabulary: Vocabulary, prompt: DecisionPrompt, engine: EngineDriver) {
    this.#vocabulary = vocabulary;
    this.#prompt = prompt;
    this.#engine = engine;
  }

  /** Rejects if the file is no model that can decide. */
  static async open(file: string): Promise<Asker> {
    const vocabulary = await loadVocabulary(file);
    const parts = makePromptParts(vocabulary);
    if (parts.kind === 'bad') throw new Error(parts.problem);
    const made = makeDecisionPrompt(parts.parts);
    if (made.kind === 'bad') throw new Error(made.problem);
    // As the engine of a decision model on a CPU.
    const setup = {
      kind: 'decision',
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: 256,
      prefixReuse: 'auto',
    } as const;
    const engine = await EngineDriver.start(file, 2, { ...setup, flashAttention: false });
    return new Asker(vocabulary, made.prompt, engine);
  }

  /** Throws if a prompt is too long. */
  async ask(input: string, questions: readonly Question[]): Promise<Answered[]> {
    const tokens = this.#prompt.tokenize(input, questions);
    if (tokens.kind === 'too-long') throw new Error('a prompt is too long');
    const answers: Answered[] = [];
    const job = {
      input: tokens.input,
      questions: tokens.questions,
      temperature: 1,
      scope: ALL_ACCOUNTS,
      isolate: true,
      seats: 1,
    };
    await this.#engine.run([{ kind: 'score', job }], ({ output }) => {
      if (output.kind === 'answer') {
        const { labelMass } = output;
        answers[output.question] = { probabilities: [...output.probabilities], labelMass };
      }
      return undefined;
    });
    return answers;
  }

  /** Tokens of an input with the text before it. */
  lengthOf(input: string): number {
    const tokens = this.#prompt.tokenize(input, []);
    return tokens.kind === 'tokens' ? tokens.input.length : tokens.tokens;
  }

  async close(): Promise<void> {
    await this.#engine.close();
    await this.#vocabulary.dispose();
  }
}
