/** Tiny random models of further architecture families, beside those of architectures.ts and llama's own. */
import type { MetadataValue } from '../../bench/models/gguf-format.js';
import type { TensorSource } from '../../bench/models/gguf-writer.js';
import type { Vocabulary } from '../../bench/models/vocabulary.js';
import {
  architectureModel,
  attention,
  attentionKeys,
  constant,
  CONTEXT,
  EPSILON,
  feedForward,
  float32,
  HEAD,
  HEADS,
  KV_HEADS,
  layersOf,
  matrix,
  uint32,
  WIDTH,
  WINDOW,
  writeArchitecture,
  type Architecture,
} from './architectures.js';
import { testModel } from './models.js';

/** A family, the state that its models keep, and where to get a model of it. */
export interface Family {
  /** llama.cpp's name of the architecture. */
  readonly name: string;
  readonly state: 'every token' | 'sliding window' | 'recurrent' | 'recurrent and every token';
  readonly model: () => Promise<string>;
}

const EXPERTS = 4;
const EXPERTS_USED = 2;
const EXPERT_WIDTH = 64;

export const FAMILIES: readonly Family[] = [
  { name: 'llama', state: 'every token', model: () => testModel() },
  { name: 'qwen3', state: 'every token', model: () => writeArchitecture('qwen3', (v) => qwen3(v, false)) },
  { name: 'qwen3moe', state: 'every token', model: () => writeArchitecture('qwen3moe', (v) => qwen3(v, true)) },
  { name: 'gemma3', state: 'sliding window', model: () => writeArchitecture('gemma3', gemma3) },
  { name: 'gpt-oss', state: 'sliding window', model: () => writeArchitecture('gpt-oss', gptOss) },
  { name: 'cohere2', state: 'sliding window', model: () => architectureModel('sliding-window') },
  { name: 'lfm2', state: 'recurrent and every token', model: () => architectureModel('hybrid') },
  { name: 'mamba', state: 'recurrent', model: () => architectureModel('recurrent') },
  { name: 'mamba2', state: 'recurrent', model: () => writeArchitecture('mamba2', mamba2) },
];

const base: Architecture['keys'] = [
  ['context_length', uint32(CONTEXT)],
  ...attentionKeys('layer_norm_rms_epsilon'),
  ['attention.head_count_kv', uint32(KV_HEADS)],
  ['attention.key_length', uint32(HEAD)],
  ['attention.value_length', uint32(HEAD)],
];

const moe: readonly (readonly [string, MetadataValue])[] = [
  ['expert_count', uint32(EXPERTS)],
  ['expert_used_count', uint32(EXPERTS_USED)],
  ['expert_feed_forward_length', uint32(EXPERT_WIDTH)],
];

const norm = (name: string, width = WIDTH): TensorSource => constant(name, [width], 1);

function headNorms(n: number): TensorSource[] {
  return [norm(`blk.${n}.attn_q_norm.weight`, HEAD), norm(`blk.${n}.attn_k_norm.weight`, HEAD)];
}

function experts(n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.ffn_gate_inp.weight`, WIDTH, EXPERTS),
    matrix(`blk.${n}.ffn_gate_exps.weight`, WIDTH, EXPERT_WIDTH, 1, EXPERTS),
    matrix(`blk.${n}.ffn_up_exps.weight`, WIDTH, EXPERT_WIDTH, 1, EXPERTS),
    matrix(`blk.${n}.ffn_down_exps.weight`, EXPERT_WIDTH, WIDTH, 2, EXPERTS),
  ];
}

/** The output matrix is one of its own: the embeddings would say each token again. */
function ends({ size }: Vocabulary, layers: readonly TensorSource[], gain = 8): TensorSource[] {
  return [
    matrix('token_embd.weight', WIDTH, size, gain),
    ...layers,
    norm('output_norm.weight'),
    matrix('output.weight', WIDTH, size, 2),
  ];
}

function qwen3(vocabulary: Vocabulary, sparse: boolean): Architecture {
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

function gemma3(vocabulary: Vocabulary): Architecture {
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

function gptOss(vocabulary: Vocabulary): Architecture {
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

function mamba2(vocabulary: Vocabulary): Architecture {
  const inner = 2 * WIDTH;
  const [kernel, state, heads] = [4, 16, 4];
  const convolved = inner + 2 * state;
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    matrix(`blk.${n}.ssm_in.weight`, WIDTH, inner + convolved + heads),
    matrix(`blk.${n}.ssm_conv1d.weight`, kernel, convolved),
    constant(`blk.${n}.ssm_conv1d.bias`, [convolved], 0),
    constant(`blk.${n}.ssm_dt.bias`, [heads], -4),
    constant(`blk.${n}.ssm_a`, [1, heads], -1),
    constant(`blk.${n}.ssm_d`, [1, heads], 1),
    constant(`blk.${n}.ssm_norm.weight`, [inner, 1], 1),
    matrix(`blk.${n}.ssm_out.weight`, inner, WIDTH, 2),
  ];
  return {
    name: 'mamba2',
    keys: [
      ['context_length', uint32(CONTEXT)],
      ['feed_forward_length', uint32(0)],
      ['attention.head_count', uint32(0)],
      ['attention.layer_norm_rms_epsilon', float32(EPSILON)],
      ['ssm.conv_kernel', uint32(kernel)],
      ['ssm.inner_size', uint32(inner)],
      ['ssm.state_size', uint32(state)],
      ['ssm.time_step_rank', uint32(heads)],
      ['ssm.group_count', uint32(1)],
    ],
    tensors: ends(vocabulary, layersOf(layer)),
  };
}
