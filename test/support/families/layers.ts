/** Metadata keys and tensors that several architecture families share. */
import type { MetadataValue } from '../../../bench/models/gguf-format.js';
import type { TensorSource } from '../../../bench/models/gguf-writer.js';
import type { Vocabulary } from '../../../bench/models/vocabulary.js';
import {
  attentionKeys,
  constant,
  CONTEXT,
  HEAD,
  KV_HEADS,
  matrix,
  uint32,
  WIDTH,
  type Architecture,
} from '../architectures.js';

const EXPERTS_USED = 2;
export const EXPERTS = 4;
export const EXPERT_WIDTH = 64;

export const base: Architecture['keys'] = [
  ['context_length', uint32(CONTEXT)],
  ...attentionKeys('layer_norm_rms_epsilon'),
  ['attention.head_count_kv', uint32(KV_HEADS)],
  ['attention.key_length', uint32(HEAD)],
  ['attention.value_length', uint32(HEAD)],
];

export const moe: readonly (readonly [string, MetadataValue])[] = [
  ['expert_count', uint32(EXPERTS)],
  ['expert_used_count', uint32(EXPERTS_USED)],
  ['expert_feed_forward_length', uint32(EXPERT_WIDTH)],
];

export const norm = (name: string, width = WIDTH): TensorSource => constant(name, [width], 1);

export function headNorms(n: number): TensorSource[] {
  return [norm(`blk.${n}.attn_q_norm.weight`, HEAD), norm(`blk.${n}.attn_k_norm.weight`, HEAD)];
}

export function experts(n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.ffn_gate_inp.weight`, WIDTH, EXPERTS),
    matrix(`blk.${n}.ffn_gate_exps.weight`, WIDTH, EXPERT_WIDTH, 1, EXPERTS),
    matrix(`blk.${n}.ffn_up_exps.weight`, WIDTH, EXPERT_WIDTH, 1, EXPERTS),
    matrix(`blk.${n}.ffn_down_exps.weight`, EXPERT_WIDTH, WIDTH, 2, EXPERTS),
  ];
}

/** The output matrix is separate: with the embeddings the model would repeat each token. */
export function ends({ size }: Vocabulary, layers: readonly TensorSource[], gain = 8): TensorSource[] {
  return [
    matrix('token_embd.weight', WIDTH, size, gain),
    ...layers,
    norm('output_norm.weight'),
    matrix('output.weight', WIDTH, size, 2),
  ];
}

export function sharedExpert(n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.ffn_gate_shexp.weight`, WIDTH, EXPERT_WIDTH),
    matrix(`blk.${n}.ffn_up_shexp.weight`, WIDTH, EXPERT_WIDTH),
    matrix(`blk.${n}.ffn_down_shexp.weight`, EXPERT_WIDTH, WIDTH, 2),
  ];
}
