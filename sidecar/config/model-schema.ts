/** Settings of each model: its file, replicas, memory, and what computes it. */
import type { ValueOf } from '../contracts/validator.js';
import { bytes, flag, integer, MIB, milliseconds, path, section, text, type SettingSchema } from './setting.js';

/** Of a replica; the same as engine/protocol/setup.ts has. */
export const MOST_SEATS = 256;
const SEATS = { minimum: 1, maximum: MOST_SEATS };

/** What a model is for; the same as engine/protocol/setup.ts has. */
export const MODEL_KINDS = ['chat', 'decision', 'embedding', 'rerank'] as const;

/** Tokens of one seat. */
export const CONTEXT = { minimum: 64, maximum: 1_048_576 };

const THREADS = { minimum: 0, maximum: 1024 };

/** More than any model has. */
const MOST_LAYERS = 1000;

const KV_TYPES = ['f16', 'q8_0', 'q4_0'] as const;

/** The same as engine/prompt/tool-use.ts has. */
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

/** Numbers and ranges of cores. */
const CORES = { pattern: '^\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*$', maxLength: 256 };

/** Engine processes of one model. */
const MOST_REPLICAS = 64;

/** Of a GPU or of a MIG instance, as `nvidia-smi -L` prints it. */
const UUID = '^(GPU|MIG)-[0-9A-Za-z/-]{1,96}$';

/** One GPU. */
const DEVICE = {
  type: ['integer', 'string'],
  minimum: 0,
  maximum: 255,
  pattern: UUID,
  maxLength: 128,
  'x-message': 'must be the index of a GPU, or the UUID of one or of a MIG instance',
} as const satisfies SettingSchema;

const replicasSchema = {
  type: ['integer', 'string', 'array'],
  description:
    'Engine processes of this model, behind one queue (docs/sizing.md#replicas). A list has an object for each: `devices`, and `seats`, `contextPerSeat`, `threads` and `cores` where they differ from the model’s.',
  default: 1,
  allowedText: `from 1 to ${MOST_REPLICAS}, \`auto\`, or a list`,
  'x-message': `must be a number from 1 to ${MOST_REPLICAS}, auto, or a list of at most ${MOST_REPLICAS} replicas`,
  minimum: 1,
  maximum: MOST_REPLICAS,
  word: 'auto',
  pattern: '^auto$',
  minItems: 1,
  maxItems: MOST_REPLICAS,
  items: {
    type: 'object',
    additionalProperties: false,
    properties: {
      devices: {
        ...DEVICE,
        type: ['integer', 'string', 'array'],
        minItems: 1,
        maxItems: 16,
        items: DEVICE,
        'x-message': 'must be the index of a GPU, the UUID of one or of a MIG instance, or a list of these',
      },
      seats: { type: 'integer', ...SEATS },
      contextPerSeat: { type: 'integer', ...CONTEXT },
      threads: { type: 'integer', ...THREADS },
      cores: { type: 'string', ...CORES },
    },
  },
} as const satisfies SettingSchema;

const URL_PATTERN = '^https?://[^\\s@#?]+$';

/** `models[].engine`: what computes the model's replies (docs/engines.md). */
const engineSchema = section({
  kind: text('`llama.cpp`: the sidecar’s own engine processes; else an external server (docs/engines.md).', {
    enum: ['llama.cpp', 'llama-server', 'vllm', 'sglang'],
    default: 'llama.cpp',
  }),
  url: {
    type: ['string', 'array'],
    description: 'URL of the server, or a list: each is a replica with `seats` of its own.',
    defaultText: 'none',
    allowedText: 'a URL, or a list of up to 64',
    'x-message': 'must be an http or https URL without credentials and query, or a list of up to 64 of these',
    maxLength: 2048,
    pattern: URL_PATTERN,
    minItems: 1,
    maxItems: 64,
    items: { type: 'string', maxLength: 2048, pattern: URL_PATTERN },
  },
  socket: path('Path of the server’s Unix socket, in place of `url`.', { defaultText: 'none', maxLength: 107 }),
  model: text('What the server calls the model.', { defaultText: 'the first one that it lists', maxLength: 1024 }),
  secretFile: path(
    'File whose first line is sent as `Authorization: Bearer`; read whenever an engine process starts.',
    { defaultText: 'none' },
  ),
  tokens: integer(
    'Tokens of prompts and longest replies that may be in flight at one server: what its KV memory holds.',
    { minimum: 64, maximum: 2 ** 40, unit: 'tokens', defaultText: '`seats` times `contextPerSeat`' },
  ),
  cancelWaitMs: milliseconds(
    'How long the seat of a caller who disconnected stays in use while the server continues to compute.',
    { default: 30_000, minimum: 100 },
  ),
  silentMs: milliseconds(
    'How long a request may be without its first token (with llama-server without progress of its prompt), or a question without its answer; then it fails. Longer than the longest prompt takes.',
    { default: 180_000, minimum: 100 },
  ),
  tokenMs: milliseconds('The same for further tokens. Longer than the server lets a reply wait that it preempted.', {
    default: 60_000,
    minimum: 100,
  }),
});

const visionSchema = {
  type: 'object',
  description:
    'What reads the images of a chat model’s requests: a process of its own, in which callers’ files are decoded. docs/vision.md. Absent: an image is answered 400.',
  defaultText: 'the model takes no images',
  additionalProperties: false,
  required: ['projector'],
  properties: {
    projector: path('Path of the model’s projector, a GGUF file (`mmproj`).', { defaultText: 'none: it must be set' }),
    maxImages: integer('Images of one request.', { default: 16, minimum: 1, maximum: 1024 }),
    maxPixels: integer('Pixels of one image. The decoder takes up to 32 bytes for each.', {
      default: 16_777_216,
      minimum: 1,
      maximum: 268_435_456,
    }),
    maxTokensPerImage: integer(
      'Tokens of one image. Some projectors shrink larger images to it; with others they are answered 400.',
      { minimum: 1, maximum: 65_536, unit: 'tokens', defaultText: 'the projector’s own, and 4,096' },
    ),
    threads: integer('Compute threads of the encoder. 0: one for each of `cores`, or all cores but one.', {
      default: 0,
      ...THREADS,
      unit: 'threads',
    }),
    cores: text('Cores that the encoder computes on, best others than the engine’s.', { ...CORES, defaultText: 'any' }),
    devices: {
      ...DEVICE,
      description: 'The GPU that the encoder computes on: its index, or a UUID.',
      defaultText: 'none: it computes on the CPU',
    },
    cacheBytes: bytes('Embeddings of images that are kept. 0: none.', { default: 256 * MIB, maximum: 2 ** 40 }),
  },
} as const satisfies SettingSchema;

export const modelSchema = {
  type: 'object',
  additionalProperties: false,
  required: ['id', 'kind', 'file'],
  properties: {
    id: text('The id that callers send in `model`.', { maxLength: 128, pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]*$' }),
    kind: text('What the model does.', { enum: MODEL_KINDS }),
    file: path('Path of a GGUF file, or `embedded` for the sidecar’s small model.', { word: 'embedded' }),
    engine: engineSchema,
    chatTemplate: path(
      'Path of a Jinja file in place of the chat template in `file` (docs/tool-formats.md#settings).',
      { defaultText: 'the template in `file`' },
    ),
    toolFormat: text('How the model calls tools (docs/tool-formats.md#settings).', {
      enum: TOOL_FORMATS,
      default: 'auto',
    }),
    seats: integer('Sequences that each replica runs at once; of an embedding model or a reranker, requests.', {
      default: 8,
      ...SEATS,
      unit: 'seats',
    }),
    contextPerSeat: integer(
      'Tokens of one sequence, prompt and completion together, or of one input of an embedding model or a reranker.',
      { default: 8192, ...CONTEXT, unit: 'tokens' },
    ),
    minDimensions: integer(
      'The fewest numbers to which callers may cut an embedding model’s vectors (`dimensions`), for a model that was trained for that (Matryoshka).',
      {
        minimum: 1,
        maximum: 65_536,
        unit: 'numbers',
        defaultText: 'none: vectors have the length that the model makes',
      },
    ),
    replicas: replicasSchema,
    threads: integer(
      'Compute threads. 0: one for each of `cores`, or all cores but one, shared by replicas on a CPU.',
      { default: 0, ...THREADS, unit: 'threads' },
    ),
    cores: text('Cores that the engine computes on, as in `0-3,8`. Linux only; needs `taskset`.', {
      ...CORES,
      defaultText: 'any',
    }),
    gpu: {
      enum: ['auto', 'cuda', 'vulkan', 'metal', false],
      description: 'Backend. `auto`: a GPU if there is one; `false`: CPU only.',
      default: 'auto',
    },
    gpuLayers: {
      type: ['integer', 'string'],
      minimum: 0,
      maximum: MOST_LAYERS,
      word: 'all',
      pattern: '^all$',
      description: 'Layers that a GPU computes, the output counting as one (docs/models.md#memory).',
      default: 'all',
      allowedText: `\`all\`, or from 0 to ${MOST_LAYERS}`,
      'x-message': `must be all or a number from 0 to ${MOST_LAYERS}`,
    },
    flashAttention: {
      enum: ['auto', true, false],
      description:
        'Flash attention. `auto`: on a GPU; on a CPU for a chat model whose heads are 64 wide or more, or whose seats have at most 512 tokens.',
      default: 'auto',
    },
    prefillTokensPerStep: integer('Prompt tokens that may be added to one step. 0: 256 on a CPU, 1,024 with a GPU.', {
      default: 0,
      minimum: 0,
      maximum: 65_536,
      unit: 'tokens',
    }),
    stepMs: integer(
      'On a GPU: the time of a step beside running replies, prompt tokens included (docs/sizing.md#seats).',
      { default: 100, minimum: 1, maximum: 10_000, unit: 'ms' },
    ),
    prefillShare: integer(
      'On a CPU: a step’s time for new prompts, in percent of that for the replies’ next tokens (docs/sizing.md#prefill-beside-replies).',
      { default: 50, minimum: 1, maximum: 10_000, unit: '%' },
    ),
    prefixReuse: text(
      'Which part of a new prompt is taken from KV state that a sequence still has (docs/engine.md#prefix-reuse).',
      { enum: ['auto', 'any', 'off'], default: 'auto' },
    ),
    prefillAhead: flag(
      'With `prefixReuse: auto` and a recurrent, hybrid or sliding-window model: an idle engine evaluates the last replies for their next turns.',
      true,
    ),
    speculation: text(
      'A reply that repeats its prompt or itself gets several tokens from one decode (docs/engine.md#a-step).',
      { enum: ['auto', 'off'], default: 'auto' },
    ),
    swaFull: flag('Keep the whole past state of sliding windows, for more memory. `false`: `checkpoints`.', false),
    kv: section({
      keys: text(
        'Number format of the keys that attention keeps (docs/sizing.md#memory-by-hand); leave `f16` for decisions.',
        { enum: KV_TYPES, default: 'f16' },
      ),
      values: text('The same of the values. Other than `f16` it needs flash attention.', {
        enum: KV_TYPES,
        default: 'f16',
      }),
    }),
    checkpoints: section({
      bytes: integer(
        'Host memory for saved states of a recurrent, hybrid or sliding-window model. 0: each prompt is evaluated from its start.',
        {
          minimum: 0,
          maximum: 2 ** 40,
          unit: 'bytes',
          defaultText: 'twice the past state of all seats, at most a quarter of what is free, and 8 GiB',
        },
      ),
    }),
    vision: visionSchema,
    prefixCache: section({
      scope: text(
        'Whose prefixes a request may reuse: its own account’s, or all, which reveals what others sent (docs/engine.md#prefix-reuse).',
        { enum: ['account', 'all'], default: 'account' },
      ),
      bytes: integer(
        'Host memory of each engine process for prefixes (docs/engine.md#prefixes-in-host-memory). 0: none.',
        {
          minimum: 0,
          maximum: 2 ** 40,
          unit: 'bytes',
          defaultText:
            'a quarter of what is free once models are loaded, shared by all engine processes, at most 8 GiB each',
        },
      ),
      maxAgeMs: milliseconds('State that was not used for this long is dropped, up to 10 s late.', {
        default: 3_600_000,
        minimum: 1000,
      }),
    }),
    load: text(
      'Whether it is loaded at the start or at the first request for it (docs/models.md#lazy-and-unloaded-when-idle).',
      { enum: ['eager', 'lazy'], default: 'eager' },
    ),
    idleUnloadMs: milliseconds('Unloaded after this long without a request, and then lazy. 0: never.', { default: 0 }),
    cohort: text('Only keys of this cohort may call the model and see it in the list.', {
      maxLength: 256,
      defaultText: 'open to all',
    }),
    ownedBy: text('`owned_by` in the model list.', { default: 'local', maxLength: 128 }),
  },
} as const satisfies SettingSchema;

export type ModelConfig = ValueOf<typeof modelSchema>;

/** A GPU by its index, its UUID or the UUID of a MIG instance. */
export type Device = ValueOf<typeof DEVICE>;

/** One engine process of a model. A field that is absent has the model's value. */
export type ReplicaConfig = ValueOf<typeof replicasSchema.items>;

/** URLs of a model's servers; none: it is reached over a socket, or is our own engine. */
export function serverUrls({ engine }: Pick<ModelConfig, 'engine'>): readonly string[] {
  return ([] as string[]).concat(engine.url ?? []);
}
