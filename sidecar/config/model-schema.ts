import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';
import { engineSchema } from './engine-schema.js';
import { CORES, replicasSchema } from './replicas-schema.js';
import { visionSchema } from './vision-schema.js';

/** Of a replica; the same as engine/protocol/setup.ts has. */
export const MOST_SEATS = 256;

/** More than any model has. */
const MOST_LAYERS = 1000;

const KV_TYPES = ['f16', 'q8_0', 'q4_0'] as const;

/** The same as engine/prompt/named-syntaxes.ts has. */
export const TOOL_FORMATS = [
  'auto',
  'json',
  'none',
  'hermes',
  'llama',
  'mistral',
  'mistral-args',
  'qwen3-coder',
  'glm',
  'minimax-m2',
  'deepseek-v3.1',
  'deepseek-v3.2',
  'kimi-k2',
  'kimi-k3',
  'gemma-4',
  'lfm2',
  'gpt-oss',
  'muse',
  'solar',
  'granite',
  'gigachat',
  'minimax-m3',
  'functionary-v3.2',
  'command-r-plus',
  'firefunction',
] as const;

/** One item of `models`. */
export const modelSchema: SettingSchema = {
  type: 'object',
  additionalProperties: false,
  required: ['id', 'kind', 'file'],
  properties: {
    id: text('The id that callers send in `model`.', { maxLength: 128, pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]*$' }),
    kind: text('Whether the model chats or answers decisions.', { enum: ['chat', 'decision'] }),
    file: text(
      'Path of a GGUF file, relative to the working directory, or `embedded` for the small model that is part of the sidecar.',
      {},
    ),
    engine: engineSchema,
    chatTemplate: text(
      'Path of a Jinja file, relative to the working directory, to use in place of the chat template in `file`: for a file without one, or with one that was mended since. At most 1 MiB. Read at the start.',
      { defaultText: 'the template in `file`' },
    ),
    toolFormat: text(
      'How the model calls tools (docs/tool-formats.md). `auto`: the format is found from the template. `json`: the prompt asks for one JSON object, and a grammar constrains the whole reply to it. `none`: requests with tools are answered 422. Any other name is a format to use whatever the template says.',
      { enum: TOOL_FORMATS, default: 'auto' },
    ),
    seats: integer('Sequences that the engine runs at once, each of its replicas.', {
      default: 8,
      minimum: 1,
      maximum: MOST_SEATS,
      unit: 'seats',
    }),
    contextPerSeat: integer(
      'Tokens of one sequence, prompt and completion together. A decision prompt may have 8,185 tokens, so use 8,192 for a decision model if memory allows.',
      { default: 8192, minimum: 64, maximum: 1_048_576, unit: 'tokens' },
    ),
    replicas: replicasSchema,
    threads: integer(
      'Compute threads. 0: one for each of `cores`, or all cores but one, shared by replicas on a CPU.',
      { default: 0, minimum: 0, maximum: 1024, unit: 'threads' },
    ),
    cores: text(
      'Cores that the engine computes on, as in `0-3,8`. Other processes may still use them. Linux only; needs `taskset`.',
      { pattern: CORES, maxLength: 256, defaultText: 'any' },
    ),
    gpu: {
      enum: ['auto', 'cuda', 'vulkan', 'metal', false],
      description: 'Backend. `auto`: a GPU if there is one; `false`: CPU only.',
      default: 'auto',
    },
    gpuLayers: {
      type: ['integer', 'string'],
      minimum: 0,
      maximum: MOST_LAYERS,
      pattern: '^all$',
      description:
        'Layers that a GPU computes, counting the output as one. `all`: a model that does not fit into GPU memory is not loaded. A number: at most so many; the CPU computes the others, which makes each step many times slower.',
      default: 'all',
      allowedText: `\`all\`, or from 0 to ${MOST_LAYERS}`,
      'x-message': `must be all or a number from 0 to ${MOST_LAYERS}`,
    },
    flashAttention: {
      enum: ['auto', true, false],
      description:
        'Flash attention. `auto`: with a GPU; on a CPU for a chat model whose heads are 64 wide or more, or whose seats have at most 512 tokens. With narrower heads it makes small chunks behind long prompts many times slower on a CPU (bench/results/attention.md).',
      default: 'auto',
    },
    prefillTokensPerStep: integer(
      'Prompt tokens that all prefilling sequences together may add to one step: fewer keep running streams smoother, more start new ones sooner. The last 96 tokens of prompts, or as many times that as prompts wait for each running reply, join a step whatever `prefillShare` is, within this bound. 0: 256 on a CPU, 1,024 with a GPU.',
      { default: 0, minimum: 0, maximum: 65_536, unit: 'tokens' },
    ),
    prefillShare: integer(
      'Time that a step may spend on new prompts beside running replies, in percent of the time that the replies’ next tokens take, including the fixed cost of one more decode. If more prompts wait than replies run, it is multiplied by their ratio.',
      { default: 50, minimum: 1, maximum: 10_000, unit: '%' },
    ),
    prefixReuse: text(
      'Which part of a new prompt is taken from KV state that a sequence still has. `auto`: a request that runs alone reuses only whole prefill chunks, so that its result is the same with and without reuse; a request beside others, on any replica of its model, reuses every shared token. `any`: always every shared token, which may change the last digits of results. `off`: nothing.',
      { enum: ['auto', 'any', 'off'], default: 'auto' },
    ),
    prefillAhead: {
      type: 'boolean',
      description:
        'For a model whose past state cannot be truncated (recurrent, hybrid, sliding window): while its engine has had nothing to do for 200 ms, it evaluates the last replies as their conversations’ next prompts will contain them, so that these start sooner; with `prefixReuse: auto`. A request that arrives meanwhile waits for the chunk that is being computed, at most. `false`: an idle engine computes nothing.',
      default: true,
    },
    swaFull: {
      type: 'boolean',
      description:
        'Keep the whole past state of layers with a sliding window, so that a prompt can go on from any token of the one before. It takes more memory, which models verify counts. Without it such models go on from `checkpoints`.',
      default: false,
    },
    kv: section({
      keys: text(
        'Number format of the keys that attention keeps. `q8_0` takes 0.53 of the memory of `f16`, `q4_0` 0.28, and the more it is rounded the more results move: leave `f16` for decisions. Heads must be a multiple of 32 wide.',
        { enum: KV_TYPES, default: 'f16' },
      ),
      values: text('The same of the values. Other than `f16` it needs flash attention.', {
        enum: KV_TYPES,
        default: 'f16',
      }),
    }),
    checkpoints: section({
      bytes: {
        type: 'integer',
        description:
          'Host memory for saved states of a model whose past state cannot be truncated (recurrent, hybrid, sliding window): its next prompts go on from there. Those worth least make room. 0: each prompt is evaluated from its start. Counted when memory is checked.',
        minimum: 0,
        maximum: 2 ** 40,
        unit: 'bytes',
        defaultText: 'twice the past state of all seats, at most a quarter of what is free and 8 GiB',
      },
    }),
    vision: visionSchema,
    prefixCache: section({
      scope: text(
        'Whose prefixes a request may reuse. `account`: only what requests of its own account left, so that neither `cached_tokens` nor the time of a prefill shows what another account sent. `all`: what any request of the model left, which saves the prefill of a beginning that accounts share.',
        { enum: ['account', 'all'], default: 'account' },
      ),
      bytes: {
        type: 'integer',
        description:
          'Host memory of each engine process for prefixes whose sequence is assigned to another request: a later request with the same prefix restores it instead of evaluating it again. At most what `/dev/shm` can hold. 0: none. Counted when memory is checked.',
        minimum: 0,
        maximum: 2 ** 40,
        unit: 'bytes',
        defaultText:
          'a quarter of what is free once the model is loaded, shared by all engine processes whose size is not set, at most 8 GiB each; 0 below 64 MiB',
      },
      maxAgeMs: milliseconds(
        'What was not used for so long is dropped, in host memory and in free sequences, up to 10 s late.',
        { default: 3_600_000, minimum: 1000 },
      ),
    }),
    load: text(
      '`eager`: loaded at the start; the sidecar is ready only once it is loaded. `lazy`: loaded at the first request for it, which waits for that (`queue.waitForLoad`).',
      { enum: ['eager', 'lazy'], default: 'eager' },
    ),
    idleUnloadMs: milliseconds('Unloaded after this long without a request, and then treated as lazy. 0: never.', {
      default: 0,
    }),
    cohort: text(
      'Only keys of this cohort may call the model (`entitlements.<environment>.cohort` in the keys file); others get `not_in_cohort` and do not see it in the model list.',
      { maxLength: 256, defaultText: 'open to all' },
    ),
    ownedBy: text('`owned_by` in the model list.', { default: 'local', maxLength: 128 }),
  },
};
