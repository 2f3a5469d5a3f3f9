/** Tiny random models of families with recurrent layers. */
import type { TensorSource } from '../../../bench/models/gguf-writer.js';
import type { Vocabulary } from '../../../bench/models/vocabulary.js';
import {
  attention,
  constant,
  CONTEXT,
  EPSILON,
  feedForward,
  float32,
  layersOf,
  matrix,
  uint32,
  WIDTH,
  type Architecture,
} from '../architectures.js';
import { base, ends, EXPERT_WIDTH, experts, headNorms, moe, norm, sharedExpert } from './layers.js';

/** Numbers of a Mamba 2 mixer: the inner width is split into heads, and the heads share one group of state projections. */
const MAMBA = { inner: 2 * WIDTH, kernel: 4, state: 16, heads: 4, groups: 1 } as const;

const mambaKeys: Architecture['keys'] = [
  ['ssm.conv_kernel', uint32(MAMBA.kernel)],
  ['ssm.inner_size', uint32(MAMBA.inner)],
  ['ssm.state_size', uint32(MAMBA.state)],
  ['ssm.time_step_rank', uint32(MAMBA.heads)],
  ['ssm.group_count', uint32(MAMBA.groups)],
];

function mambaMixer(n: number): TensorSource[] {
  const { inner, kernel, state, heads, groups } = MAMBA;
  const convolved = inner + 2 * groups * state;
  return [
    matrix(`blk.${n}.ssm_in.weight`, WIDTH, inner + convolved + heads),
    matrix(`blk.${n}.ssm_conv1d.weight`, kernel, convolved),
    constant(`blk.${n}.ssm_conv1d.bias`, [convolved], 0),
    constant(`blk.${n}.ssm_dt.bias`, [heads], -4),
    constant(`blk.${n}.ssm_a`, [1, heads], -1),
    constant(`blk.${n}.ssm_d`, [1, heads], 1),
    constant(`blk.${n}.ssm_norm.weight`, [inner / groups, groups], 1),
    matrix(`blk.${n}.ssm_out.weight`, inner, WIDTH, 2),
  ];
}

export function mamba2(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [norm(`blk.${n}.attn_norm.weight`), ...mambaMixer(n)];
  return {
    name: 'mamba2',
    keys: [
      ['context_length', uint32(CONTEXT)],
      ['feed_forward_length', uint32(0)],
      ['attention.head_count', uint32(0)],
      ['attention.layer_norm_rms_epsilon', float32(EPSILON)],
      ...mambaKeys,
    ],
    tensors: ends(vocabulary, layersOf(layer)),
  };
}

/** In each layer a Mamba 2 mixer and attention read the same input side by side. */
export function falconH1(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    ...mambaMixer(n),
    ...attention(n),
    // llama.cpp requires it without a suffix.
    norm(`blk.${n}.ffn_norm`),
    ...feedForward(n),
  ];
  return { name: 'falcon-h1', keys: [...base, ...mambaKeys], tensors: ends(vocabulary, layersOf(layer)) };
}

/** Numbers of a gated delta net. */
const DELTA = { kernel: 4, state: 16, keyHeads: 2, valueHeads: 4 } as const;
const [KEYS, VALUES] = [DELTA.state * DELTA.keyHeads, DELTA.state * DELTA.valueHeads];

const deltaKeys: Architecture['keys'] = [
  ['ssm.conv_kernel', uint32(DELTA.kernel)],
  ['ssm.inner_size', uint32(VALUES)],
  ['ssm.state_size', uint32(DELTA.state)],
  ['ssm.time_step_rank', uint32(DELTA.valueHeads)],
  ['ssm.group_count', uint32(DELTA.keyHeads)],
  ['full_attention_interval', uint32(2)],
];

function deltaNet(n: number): TensorSource[] {
  const { kernel, state, valueHeads } = DELTA;
  return [
    matrix(`blk.${n}.attn_qkv.weight`, WIDTH, 2 * KEYS + VALUES),
    matrix(`blk.${n}.attn_gate.weight`, WIDTH, VALUES),
    matrix(`blk.${n}.ssm_conv1d.weight`, kernel, 2 * KEYS + VALUES),
    constant(`blk.${n}.ssm_dt.bias`, [valueHeads], -4),
    constant(`blk.${n}.ssm_a`, [valueHeads], -1),
    norm(`blk.${n}.ssm_norm.weight`, state),
    matrix(`blk.${n}.ssm_out.weight`, VALUES, WIDTH, 2),
  ];
}

/** With a gate on its output. */
function gatedAttention(n: number): TensorSource[] {
  return [matrix(`blk.${n}.attn_q.weight`, WIDTH, 2 * WIDTH, 2), ...attention(n).slice(1), ...headNorms(n)];
}

/** Every second layer attends, with a gate on its output; the others are gated delta nets. All have experts and a shared one. */
export function qwen3next(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    norm(`blk.${n}.post_attention_norm.weight`),
    ...(n % 2 === 1
      ? gatedAttention(n)
      : [...deltaNet(n), matrix(`blk.${n}.ssm_ba.weight`, WIDTH, 2 * DELTA.valueHeads)]),
    ...experts(n),
    constant(`blk.${n}.ffn_gate_inp_shexp.weight`, [WIDTH], 0),
    ...sharedExpert(n),
  ];
  return {
    name: 'qwen3next',
    keys: [...base, ...moe, ['expert_shared_feed_forward_length', uint32(EXPERT_WIDTH)], ...deltaKeys],
    tensors: ends(vocabulary, layersOf(layer)),
  };
}

/** Layers as qwen3next's, without experts; positions have two dimensions in images. */
export function qwen35(vocabulary: Vocabulary): Architecture {
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    norm(`blk.${n}.post_attention_norm.weight`),
    ...(n % 2 === 1
      ? gatedAttention(n)
      : [
          ...deltaNet(n),
          ...['alpha', 'beta'].map((part) => matrix(`blk.${n}.ssm_${part}.weight`, WIDTH, DELTA.valueHeads)),
        ]),
    ...feedForward(n),
  ];
  return {
    name: 'qwen35',
    keys: [...base, ...deltaKeys, ['rope.dimension_sections', { type: 'int32s', value: [2, 3, 3, 0] }]],
    tensors: ends(vocabulary, layersOf(layer)),
  };
}
