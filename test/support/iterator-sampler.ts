import type {
  EvaluationPriority,
  LlamaContextSequence,
  LlamaModel,
  SequenceEvaluateOptions,
  Token,
  Tokenizer,
} from 'node-llama-cpp';
import { type Sampler, type Sampling, fixedSeed, usableTemperature } from '../../engine/scheduler/decoder.js';
import { EngineFault } from '../../engine/scheduler/faults.js';
import { GrammarError } from '../../engine/llama/grammar-constraint.js';
import { LlamaGrammarEvaluationState, TokenBias } from '../../engine/llama/package.js';
import { controlTokens, grammarState, type GrammarState } from './llama-grammar.js';

/**
 * node-llama-cpp's default top-k of 40 has no public "off": 0 sorts the whole vocabulary for every token. null is
 * dropped before it reaches llama.cpp, so that no top-k sampler is made at all.
 */
export const NO_TOP_K = null as unknown as number;

const NOTHING = new Uint32Array(0);

/** One reply's sampler on node-llama-cpp's public iterator. A grammar constrains it by llama.cpp's own state. */
export class IteratorSampler implements Sampler {
  readonly #sampling: Sampling;
  readonly #model: LlamaModel;
  readonly #control: Uint32Array;
  #state: GrammarState | 'unusable' | undefined;
  /** The completion so far: penalties count over it alone, as the contract's fields define. */
  readonly #completion: Token[] = [];
  #iterator: AsyncGenerator<Token, void, Token | Token[] | undefined> | undefined;

  constructor(sampling: Sampling, model: LlamaModel) {
    this.#sampling = sampling;
    this.#model = model;
    this.#control = controlTokens(model, sampling.markers ?? []);
  }

  /** The first call evaluates `tokens`; later ones feed back the token that the one before returned. */
  async next(sequence: LlamaContextSequence, tokens: Token[], evaluationPriority: EvaluationPriority): Promise<number> {
    if (this.#state === 'unusable') throw new GrammarError();
    this.#iterator ??= sequence.evaluate(tokens, this.#options(evaluationPriority));
    const result = await this.#iterator.next(tokens);
    if (result.done) throw new EngineFault('iterator ended');
    this.#completion.push(result.value);
    return result.value;
  }

  get pending(): undefined {
    return undefined;
  }

  constrain(gbnf: string, tokens: readonly number[]): boolean {
    this.release();
    const taken = grammarState(this.#model, gbnf, tokens);
    if (taken.kind === 'mismatch') return false;
    this.#state = taken.kind === 'state' ? taken.state : 'unusable';
    return true;
  }

  release(): void {
    this.#state = undefined;
  }

  dispose(): void {
    this.release();
    void this.#iterator?.return();
  }

  /** The addon's state as the public class wraps it, whose own constructor cannot take up a text. */
  #publicState(): LlamaGrammarEvaluationState | undefined {
    const _state = this.#state;
    if (!_state || _state === 'unusable') return undefined;
    const { _llama } = this.#model as unknown as { readonly _llama: unknown };
    const wrapper = Object.create(LlamaGrammarEvaluationState.prototype) as LlamaGrammarEvaluationState;
    return Object.assign(wrapper, { _llama, _state });
  }

  #options(evaluationPriority: EvaluationPriority): SequenceEvaluateOptions {
    const s = this.#sampling;
    const { tokenizer } = this.#model;
    const held = biasAgainst(this.#control, tokenizer);
    const free = biasAgainst(NOTHING, tokenizer);
    const penalized = s.frequencyPenalty !== 0 || s.presencePenalty !== 0;
    return {
      temperature: usableTemperature(s.temperature),
      topK: s.topK ?? NO_TOP_K,
      topP: s.topP,
      minP: s.minP ?? 0,
      seed: fixedSeed(s.seed),
      evaluationPriority,
      yieldEogToken: true,
      // Both are asked for at every token.
      grammarEvaluationState: () => this.#publicState(),
      tokenBias: () => (this.#state ? held : free),
      ...(penalized && {
        repeatPenalty: {
          punishTokens: () => this.#completion,
          // Constant over a reply: a changing one would make the sampler anew at every token.
          maxPunishTokens: s.maxTokens,
          penalty: 1,
          frequencyPenalty: s.frequencyPenalty,
          presencePenalty: s.presencePenalty,
        },
      }),
    };
  }
}

/**
 * Includes end tokens, which `set` leaves out. Throws where the class is not the one whose source was read: the reply
 * would be unconstrained.
 */
function biasAgainst(denied: Uint32Array, tokenizer: Tokenizer): TokenBias {
  const bias = new TokenBias(tokenizer);
  const { _biases: biases } = bias as unknown as { readonly _biases?: unknown };
  if (!(biases instanceof Map)) throw new EngineFault('token biases are not known');
  for (const token of denied) biases.set(token, -Infinity);
  return bias;
}
