import { milliseconds, section, text, type SettingSchema } from './kinds.js';

const URL_PATTERN = '^https?://[^\\s@#?]+$';

/** `models[].engine`: what computes the model's replies (docs/engines.md). */
export const engineSchema: SettingSchema = section({
  kind: text(
    '`llama.cpp`: engine processes of the sidecar’s own. Otherwise a server of another project, which has the weights; `file` then needs only the vocabulary and the chat template (`ra-sidecar models vocabulary`), and the settings of memory, threads and GPUs are not used (docs/engines.md).',
    { enum: ['llama.cpp', 'llama-server', 'vllm', 'sglang'], default: 'llama.cpp' },
  ),
  url: {
    type: ['string', 'array'],
    description:
      'URL of the server, without a path unless it is served under one, or a list of URLs: each is a replica of the model with `seats` of its own.',
    defaultText: 'none',
    allowedText: 'a URL, or a list of up to 64',
    'x-message': 'must be an http or https URL without credentials and query, or a list of up to 64 of these',
    maxLength: 2048,
    pattern: URL_PATTERN,
    minItems: 1,
    maxItems: 64,
    items: { type: 'string', maxLength: 2048, pattern: URL_PATTERN },
  },
  socket: text('Path of a Unix socket on which the server listens, in place of `url`.', {
    defaultText: 'none',
    maxLength: 107,
  }),
  model: text('What the server calls the model.', { defaultText: 'the first one that it lists', maxLength: 1024 }),
  secretFile: text(
    'File whose first line is sent to the server as `Authorization: Bearer`. Read whenever an engine process starts.',
    { defaultText: 'none' },
  ),
  tokens: {
    type: 'integer',
    description:
      'Tokens that may be in flight at one server, prompts and the most that their replies may have together: what its KV memory holds.',
    minimum: 64,
    maximum: 2 ** 40,
    unit: 'tokens',
    defaultText: '`seats` times `contextPerSeat`',
  },
  cancelWaitMs: milliseconds(
    'How long the seat of a caller who disconnected stays in use while the server continues to compute. Past that it is used again, and the reply is counted in `ra_sidecar_engine_unconfirmed_cancels_total`.',
    { default: 30_000, minimum: 100 },
  ),
  silentMs: milliseconds(
    'How long a request may be without its first token, or with llama-server without a report that more of its prompt was computed, and a question of a decision without its answer; past that it fails. Other bytes, such as comments, do not count. Longer than the longest prompt takes a server that reports no progress. If nothing moves on the server at all, `engine.hangMs` ends its engine process sooner.',
    { default: 180_000, minimum: 100 },
  ),
  tokenMs: milliseconds(
    'How long a reply that has begun may be without a further token; past that it fails. Longer than the server lets a reply wait that it preempted.',
    { default: 60_000, minimum: 100 },
  ),
});
