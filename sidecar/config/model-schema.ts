import { integer, milliseconds, text, type SettingSchema } from './kinds.js';

/** One item of `models`. */
export const modelSchema: SettingSchema = {
  type: 'object',
  additionalProperties: false,
  required: ['id', 'kind', 'file'],
  properties: {
    id: text('What callers name in `model`.', { maxLength: 128, pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]*$' }),
    kind: text('Whether the model chats or answers decisions.', { enum: ['chat', 'decision'] }),
    file: text(
      'Path of a GGUF file, from the working directory, or `embedded` for the small one that comes with the sidecar.',
      {},
    ),
    seats: integer('Sequences that the engine runs at once.', { default: 8, minimum: 1, maximum: 256, unit: 'seats' }),
    contextPerSeat: integer(
      'What one sequence can hold, prompt and completion together. A decision prompt may have 8,185 tokens, so give a decision model 8,192 where memory allows.',
      { default: 8192, minimum: 64, maximum: 1_048_576, unit: 'tokens' },
    ),
    threads: integer('Compute threads. 0: one for each of `cores`, else all cores but one.', {
      default: 0,
      minimum: 0,
      maximum: 1024,
      unit: 'threads',
    }),
    cores: text(
      'Cores that the engine computes on, as in `0-3,8`. Nothing else is kept off them. Linux alone; needs `taskset`.',
      { pattern: '^\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*$', maxLength: 256, defaultText: 'any' },
    ),
    gpu: {
      enum: ['auto', 'cuda', 'vulkan', 'metal', false],
      description: 'Backend. `auto`: a GPU where there is one; `false`: CPU alone.',
      default: 'auto',
    },
    flashAttention: {
      enum: ['auto', true, false],
      description:
        'Flash attention. `auto`: with a GPU; on a CPU for a chat model whose heads are 64 wide or more, or whose seats hold at most 512 tokens. With narrower heads it makes small chunks behind long prompts slower there, many times over (bench/results/attention.md).',
      default: 'auto',
    },
    prefillTokensPerStep: integer(
      'Prompt tokens that all prefilling sequences together may add to one step: fewer keep running streams smoother, more start new ones sooner. The last 96 tokens of prompts, or as many times that as prompts wait for each running reply, join a step whatever `prefillShare` is, within this bound.',
      { default: 256, minimum: 1, maximum: 65_536, unit: 'tokens' },
    ),
    prefillShare: integer(
      'Time that a step may spend on new prompts beside running replies, as a share of what the replies’ next tokens take, the fixed cost of one more decode included. Where more prompts wait than replies run, as many times that.',
      { default: 50, minimum: 1, maximum: 10_000, unit: '%' },
    ),
    prefixReuse: text(
      'What of a new prompt is not evaluated again when a sequence still holds it. `auto`: a request that runs alone reuses whole prefill steps only, so that its result is the same with and without; one with company reuses all it can. `any`: always all it can, at the cost of the last digits. `off`: nothing.',
      { enum: ['auto', 'any', 'off'], default: 'auto' },
    ),
    load: text(
      '`eager`: loaded at the start, and the sidecar is ready only with it. `lazy`: loaded at the first request for it, which is answered `cold`.',
      { enum: ['eager', 'lazy'], default: 'eager' },
    ),
    idleUnloadMs: milliseconds('Unloaded after this long without a request, as if it had been lazy. 0: never.', {
      default: 0,
    }),
    cohort: text(
      'Open to keys of this cohort alone (`entitlements.<environment>.cohort` in the keys file); others get `not_in_cohort` and do not see it in the model list.',
      { maxLength: 256, defaultText: 'open to all' },
    ),
    ownedBy: text('`owned_by` in the model list.', { default: 'local', maxLength: 128 }),
  },
};
