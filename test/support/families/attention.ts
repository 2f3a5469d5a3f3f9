/** Tiny random models of families whose layers attend to tokens. */
import type { TensorSource } from '../../../bench/models/gguf-writer.js';
import type { Vocabulary } from '../../../bench/models/vocabulary.js';
import {
  attention,
  attentionKeys,
  constant,
  CONTEXT,
  feedForward,
  HEAD,
  HEADS,
  layersOf,
  matrix,
  uint32,
  WIDTH,
  WINDOW,
  type Architecture,
} from '../architectures.js';
import { base, ends, EXPERTS, EXPERT_WIDTH, experts, headNorms, moe, norm, sharedExpert } from './layers.js';

export function qwen3(vocabulary: Vocabulary, sparse: boolean): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    ...headNorms(n),
    ...attention(n),
    norm(`blk.${n}.ffn_norm.weight`),
    ...(sparse ? experts(n) : feedForward(n)),
  ];
  return {
    name: sparse ? 'qwen3moe' : 'qwen3',
    keys: sparse ? [...base, ...moe] : base,
    tensors: ends(vocabulary, layersOf(layer)),
  };
}

/** The fourth part of a head is unused. */
const SECTIONS: Architecture['keys'] = [['rope.dimension_sections', { type: 'int32s', value: [2, 3, 3, 0] }]];

/** Positions have two dimensions in images. */
export function qwen2vl(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    ...attention(n),
    norm(`blk.${n}.ffn_norm.weight`),
    ...feedForward(n),
  ];
  return { name: 'qwen2vl', keys: [...base, ...SECTIONS], tensors: ends(vocabulary, layersOf(layer)) };
}

/** The same; the first layer's output gets embeddings of its own. */
export function qwen3vl(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    ...headNorms(n),
    ...attention(n),
    norm(`blk.${n}.ffn_norm.weight`),
    ...feedForward(n),
  ];
  const keys: Architecture['keys'] = [...base, ...SECTIONS, ['n_deepstack_layers', uint32(1)]];
  return { name: 'qwen3vl', keys, tensors: ends(vocabulary, layersOf(layer)) };
}

export function gemma3(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    norm(`blk.${n}.post_attention_norm.weight`),
    ...headNorms(n),
    ...attention(n),
    norm(`blk.${n}.ffn_norm.weight`),
    norm(`blk.${n}.post_ffw_norm.weight`),
    ...feedForward(n),
  ];
  const window: Architecture['keys'] = [
    ['attention.sliding_window', uint32(WINDOW)],
    ['attention.sliding_window_pattern', uint32(2)],
  ];
  // It scales embeddings by the root of the width.
  return { name: 'gemma3', keys: [...base, ...window], tensors: ends(vocabulary, layersOf(layer), 1) };
}

/** Layers with a window, whose heads are narrower, and layers that see all; embeddings attend to each other in the former alone. */
export function gemma4(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    norm(`blk.${n}.post_attention_norm.weight`),
    ...headNorms(n),
    ...attention(n),
    norm(`blk.${n}.ffn_norm.weight`),
    norm(`blk.${n}.post_ffw_norm.weight`),
    ...feedForward(n),
  ];
  const window: Architecture['keys'] = [
    ['attention.sliding_window', uint32(WINDOW)],
    ['attention.sliding_window_pattern', { type: 'int32s', value: [1, 0] }],
    ['attention.key_length_swa', uint32(HEAD)],
    ['attention.value_length_swa', uint32(HEAD)],
    ['embedding_length_per_layer_input', uint32(0)],
  ];
  const frequencies = constant('rope_freqs.weight', [HEAD / 2], 1);
  return {
    name: 'gemma4',
    keys: [...base, ...window],
    tensors: ends(vocabulary, [frequencies, ...layersOf(layer)], 1),
  };
}

export function gptOss(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    norm(`blk.${n}.post_attention_norm.weight`),
    ...attention(n),
    constant(`blk.${n}.attn_output.bias`, [WIDTH], 0),
    constant(`blk.${n}.attn_sinks.weight`, [HEADS], 0.5),
    ...experts(n),
    constant(`blk.${n}.ffn_gate_inp.bias`, [EXPERTS], 0),
    constant(`blk.${n}.ffn_gate_exps.bias`, [EXPERT_WIDTH, EXPERTS], 0),
    constant(`blk.${n}.ffn_up_exps.bias`, [EXPERT_WIDTH, EXPERTS], 0),
    constant(`blk.${n}.ffn_down_exps.bias`, [WIDTH, EXPERTS], 0),
  ];
  const window: Architecture['keys'] = [['attention.sliding_window', uint32(WINDOW)]];
  return { name: 'gpt-oss', keys: [...base, ...moe, ...window], tensors: ends(vocabulary, layersOf(layer)) };
}

/**
 * Latent attention: keys and values are kept as one compressed vector per token, and a rotated part that the heads
 * share.
 */
export function deepseek2(vocabulary: Vocabulary): Architecture {
  const [queryRank, rank, rotated] = [32, 32, HEAD / 2];
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    matrix(`blk.${n}.attn_q_a.weight`, WIDTH, queryRank),
    norm(`blk.${n}.attn_q_a_norm.weight`, queryRank),
    matrix(`blk.${n}.attn_q_b.weight`, queryRank, HEADS * HEAD, 2),
    matrix(`blk.${n}.attn_kv_a_mqa.weight`, WIDTH, rank + rotated),
    norm(`blk.${n}.attn_kv_a_norm.weight`, rank),
    matrix(`blk.${n}.attn_k_b.weight`, HEAD - rotated, rank, 1, HEADS),
    matrix(`blk.${n}.attn_v_b.weight`, rank, HEAD, 1, HEADS),
    matrix(`blk.${n}.attn_output.weight`, HEADS * HEAD, WIDTH, 4),
    norm(`blk.${n}.ffn_norm.weight`),
    ...(n === 0 ? feedForward(n) : [...experts(n), ...sharedExpert(n)]),
  ];
  return {
    name: 'deepseek2',
    keys: [
      ['context_length', uint32(CONTEXT)],
      ...attentionKeys('layer_norm_rms_epsilon').filter(([key]) => key !== 'rope.dimension_count'),
      ['rope.dimension_count', uint32(rotated)],
      ['attention.head_count_kv', uint32(1)],
      ['attention.q_lora_rank', uint32(queryRank)],
      ['attention.kv_lora_rank', uint32(rank)],
      ['attention.key_length', uint32(rank + rotated)],
      ['attention.value_length', uint32(rank)],
      ['attention.key_length_mla', uint32(HEAD)],
      ['attention.value_length_mla', uint32(HEAD)],
      ['leading_dense_block_count', uint32(1)],
      ...moe,
      ['expert_shared_count', uint32(1)],
    ],
    tensors: ends(vocabulary, layersOf(layer)),
  };
}
