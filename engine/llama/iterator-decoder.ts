import {
  LlamaGrammarEvaluationState,
  TokenBias,
  type ControlledEvaluateInputItem,
  type CustomBatchingPrioritizationStrategy,
  type EvaluationPriority,
  type LlamaContext,
  type LlamaContextSequence,
  type LlamaModel,
  type SequenceEvaluateOptions,
  type Token,
  type Tokenizer,
} from 'node-llama-cpp';
import type { Decoder, Part, PartResult, Sampler, Sampling } from '../scheduler/decoder.js';
import { asFault, EngineFault } from '../scheduler/faults.js';
import { GrammarHold } from './grammar-hold.js';
import { Grammars } from './grammars.js';
import { labelLogprobs } from './label-scores.js';

/**
 * The decoder on node-llama-cpp's public sequence iterators, in lockstep: every part's call is made in one tick, so
 * that node-llama-cpp combines them into one batch at the end of the tick, sorted in sequence order, because llama.cpp
 * (kv_unified=false) decodes only contiguous sequence ids together (docs/engine.md#a-step).
 */
export class IteratorDecoder implements Decoder {
  readonly cuttable: boolean;
  /** The public API has no copy. */
  readonly copyable = false;
  readonly #context: LlamaContext;
  readonly #sequences: LlamaContextSequence[];
  readonly #model: LlamaModel;
  readonly #grammars: Grammars | undefined;
  /** Sequences with a fault: node-llama-cpp may not have counted what llama.cpp evaluated. */
  readonly #spoiled = new Set<number>();

  /**
   * Takes every sequence of `context`; the caller still disposes the context. Make it with {@link sequenceOrder}.
   * `cuttable`: whether the model's state can be truncated without evaluating the rest again. A sequence has one token
   * less than the context has room for.
   */
  constructor(context: LlamaContext, cuttable: boolean) {
    this.cuttable = cuttable;
    this.#context = context;
    this.#sequences = Array.from({ length: context.totalSequences }, () => context.getSequence(SEQUENCE));
    this.#model = context.model;
    this.#grammars = Grammars.of(context.model);
  }

  async step(parts: readonly Part[]): Promise<PartResult[]> {
    return Promise.all(
      parts.map((part) =>
        this.#run(part).catch((error: unknown) => {
          this.#spoiled.add(part.sequence);
          return asFault(error);
        }),
      ),
    );
  }

  halt(): void {
    // There are no runs.
  }

  async truncate(sequence: number, length: number): Promise<void> {
    const target = this.#at(sequence);
    if (length === 0 && this.#spoiled.delete(sequence)) {
      await target.dispose();
      // The only id that is free, so the same one.
      this.#sequences[sequence] = this.#context.getSequence(SEQUENCE);
    } else if (target.nextTokenIndex > length) {
      // It would evaluate the rest again, in chunks of its own.
      if (length > 0 && target.stateCellsStartIndex > 0) throw new EngineFault('the sequence cannot be cut');
      await target.eraseContextTokenRanges([{ start: length, end: target.nextTokenIndex }]);
    }
  }

  copy(): Promise<void> {
    return Promise.reject(new Error('not supported'));
  }

  sampler(sampling: Sampling): Sampler {
    return new IteratorSampler(sampling, this.#model, new GrammarHold(this.#grammars, sampling.markers));
  }

  isExpensive(stacks: number): boolean {
    return this.#grammars?.isExpensive(stacks) === true;
  }

  #at(sequence: number): LlamaContextSequence {
    const found = this.#sequences[sequence];
    if (!found) throw new RangeError(`no sequence ${sequence}`);
    return found;
  }

  async #run(part: Part): Promise<PartResult> {
    const sequence = this.#at(part.sequence);
    const tokens = Array.from(part.tokens) as Token[];
    const evaluationPriority = orderKey(part.sequence);
    switch (part.kind) {
      case 'prefill':
        await sequence.evaluateWithoutGeneratingNewTokens(tokens, { evaluationPriority });
        return { kind: 'filled' };
      case 'sample':
        if (!(part.sampler instanceof IteratorSampler)) throw new TypeError('a sampler of another decoder');
        return { kind: 'token', token: await part.sampler.next(sequence, tokens, evaluationPriority) };
      case 'score':
        return { kind: 'scores', logprobs: await score(sequence, tokens, part.labels, evaluationPriority) };
    }
  }
}

/**
 * No automatic behaviour: no checkpoints, which are not used and which no memory check counts, and a full sequence is a
 * fault rather than silently losing its beginning.
 */
const SEQUENCE = {
  checkpoints: { max: 0, interval: false },
  contextShift: {
    strategy: (): never => {
      throw new EngineFault('no room left in the KV cache');
    },
  },
} as const;

/**
 * The batching strategy to make the context with. The public batch items do not name their sequence, so it travels in
 * `evaluationPriority`, which nothing else reads once a strategy of our own is set. Items always fit: the step loop
 * counts the tokens of a step.
 */
export const sequenceOrder: CustomBatchingPrioritizationStrategy = ({ items }) =>
  [...items]
    .sort((a, b) => a.evaluationPriority - b.evaluationPriority)
    .map((item) => ({ item, processAmount: item.tokens.length }));

function orderKey(sequence: number): EvaluationPriority {
  return sequence as EvaluationPriority;
}

/**
 * node-llama-cpp's default top-k of 40 has no public "off": 0 sorts the whole vocabulary for every token. null is
 * dropped before it reaches llama.cpp, so that no top-k sampler is made at all.
 */
const NO_TOP_K = null as unknown as number;

class IteratorSampler implements Sampler {
  readonly #sampling: Sampling;
  readonly #model: LlamaModel;
  readonly #held: GrammarHold;
  /** What the completion holds so far: penalties count over it alone, as the contract's fields define. */
  readonly #completion: Token[] = [];
  #iterator: AsyncGenerator<Token, void, Token | Token[] | undefined> | undefined;

  constructor(sampling: Sampling, model: LlamaModel, held: GrammarHold) {
    this.#sampling = sampling;
    this.#model = model;
    this.#held = held;
  }

  /** The first call evaluates `tokens`; later ones feed back the token that the one before returned. */
  async next(sequence: LlamaContextSequence, tokens: Token[], evaluationPriority: EvaluationPriority): Promise<number> {
    this.#held.check();
    this.#iterator ??= sequence.evaluate(tokens, this.#options(evaluationPriority));
    const result = await this.#iterator.next(tokens);
    if (result.done) throw new EngineFault('iterator ended');
    this.#completion.push(result.value);
    this.#held.accept(result.value);
    return result.value;
  }

  get pending(): Promise<void> | undefined {
    return this.#held.pending;
  }

  hold(gbnf: string, tokens: readonly number[], stacks?: number): boolean {
    return this.#held.hold(gbnf, tokens, stacks);
  }

  release(): void {
    this.#held.release();
  }

  dispose(): void {
    this.#held.release();
    void this.#iterator?.return();
  }

  /** The addon's state as the public class wraps it, whose own constructor cannot take up a text. */
  #publicState(): LlamaGrammarEvaluationState | undefined {
    const _state = this.#held.state;
    if (!_state) return undefined;
    const { _llama } = this.#model as unknown as { readonly _llama: unknown };
    const wrapper = Object.create(LlamaGrammarEvaluationState.prototype) as LlamaGrammarEvaluationState;
    return Object.assign(wrapper, { _llama, _state });
  }

  #options(evaluationPriority: EvaluationPriority): SequenceEvaluateOptions {
    const s = this.#sampling;
    const held = this.#held;
    const { tokenizer } = this.#model;
    let last = { denied: held.denied, bias: biasAgainst(held.denied, tokenizer) };
    const penalized = s.frequencyPenalty !== 0 || s.presencePenalty !== 0;
    return {
      temperature: s.temperature,
      topK: s.topK ?? NO_TOP_K,
      topP: s.topP,
      minP: s.minP ?? 0,
      seed: s.seed,
      evaluationPriority,
      yieldEogToken: true,
      // Both are asked for at every token.
      grammarEvaluationState: () => this.#publicState(),
      tokenBias: () => {
        const { denied } = held;
        if (denied !== last.denied) last = { denied, bias: biasAgainst(denied, tokenizer) };
        return last.bias;
      },
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

/** End tokens too, which `set` leaves out. Throws where the class is not the one that was read: nothing would be held. */
function biasAgainst(denied: Uint32Array, tokenizer: Tokenizer): TokenBias {
  const bias = new TokenBias(tokenizer);
  const { _biases: biases } = bias as unknown as { readonly _biases?: unknown };
  if (!(biases instanceof Map)) throw new EngineFault('token biases are not known');
  for (const token of denied) biases.set(token, -Infinity);
  return bias;
}

/**
 * Labels' log-probabilities without a copy of the vocabulary: node-llama-cpp returns Σ exp(l − max) over all tokens, and
 * `includeSelected` at temperature 0 adds the argmax, whose logit is that max.
 */
async function score(
  sequence: LlamaContextSequence,
  tokens: Token[],
  labels: Uint32Array,
  evaluationPriority: EvaluationPriority,
): Promise<Float64Array> {
  const last = tokens.length - 1;
  const scored: ControlledEvaluateInputItem[] = [
    ...tokens.slice(0, last),
    [
      tokens[last] as Token,
      {
        generateNext: {
          logits: { filter: { tokens: Array.from(labels) as Token[], includeSelected: true } },
          totalLogitWeight: true,
          options: { temperature: 0, topK: NO_TOP_K, topP: 1, minP: 0 },
        },
      },
    ],
  ];
  const results = await sequence.controlledEvaluate(scored, { evaluationPriority });
  const next = results[last]?.next;
  if (next?.logits === undefined || next.totalLogitWeight === undefined) throw new EngineFault('no logits');
  return labelLogprobs(labels, next.logits, next.totalLogitWeight);
}
