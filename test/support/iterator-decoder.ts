import type {
  ControlledEvaluateInputItem,
  CustomBatchingPrioritizationStrategy,
  EvaluationPriority,
  LlamaContext,
  LlamaContextSequence,
  LlamaModel,
  Token,
} from 'node-llama-cpp';
import type {
  Decoder,
  StepPart,
  PartResult,
  Sampler,
  Sampling,
  SequenceStates,
} from '../../engine/scheduler/decoder.js';
import { asFault, EngineFault } from '../../engine/scheduler/faults.js';
import { IteratorSampler, NO_TOP_K } from './iterator-sampler.js';
import { labelLogprobs } from './label-scores.js';

/**
 * What tests compare the decoder of the product with: one on node-llama-cpp's public sequence iterators and llama.cpp's own samplers,
 * in lockstep: every part's call is made in one tick, so
 * that node-llama-cpp combines them into one batch at the end of the tick, sorted in sequence order, because llama.cpp
 * (kv_unified=false) decodes only contiguous sequence ids together (docs/engine.md#a-step).
 */
export class IteratorDecoder implements Decoder, SequenceStates {
  readonly states = this;
  readonly truncatable: boolean;
  /** The public API has no copy. */
  readonly copyable = false;
  readonly #context: LlamaContext;
  readonly #sequences: LlamaContextSequence[];
  readonly #model: LlamaModel;
  /** Sequences with a fault: node-llama-cpp may not have counted what llama.cpp evaluated. */
  readonly #spoiled = new Set<number>();

  /**
   * Takes every sequence of `context`; the caller still disposes the context. Make it with {@link sequenceOrder}.
   * `truncatable`: whether the model's state can be truncated without evaluating the rest again. A sequence has one token
   * less than the context has room for.
   */
  constructor(context: LlamaContext, truncatable: boolean) {
    this.truncatable = truncatable;
    this.#context = context;
    this.#sequences = Array.from({ length: context.totalSequences }, () => context.getSequence(SEQUENCE));
    this.#model = context.model;
  }

  async *step(parts: readonly StepPart[]): AsyncGenerator<PartResult[], PartResult[]> {
    return await Promise.all(
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
      if (length > 0 && target.stateCellsStartIndex > 0)
        throw new EngineFault('the sequence cannot be truncated there');
      await target.eraseContextTokenRanges([{ start: length, end: target.nextTokenIndex }]);
    }
  }

  copy(): Promise<void> {
    return Promise.reject(new Error('not supported'));
  }

  sampler(sampling: Sampling): Sampler {
    return new IteratorSampler(sampling, this.#model);
  }

  isExpensive(): boolean {
    return false;
  }

  #at(sequence: number): LlamaContextSequence {
    const found = this.#sequences[sequence];
    if (!found) throw new RangeError(`no sequence ${sequence}`);
    return found;
  }

  async #run(part: StepPart): Promise<PartResult> {
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
      case 'embeddings':
        throw new EngineFault('the iterators take no embeddings');
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
