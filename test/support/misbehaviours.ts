/** How servers of models are known to misbehave, and how a job of the remote engine then ends (docs/engines.md lists them). */
import type { Misbehaviour, StubKind } from './server-stub.js';

export const KINDS = ['llama-server', 'vllm', 'sglang'] as const;

const failed = (why: string): RegExp => new RegExp(`failed\\(${why}\\)$`);

export interface Case {
  readonly name: string;
  /** Absent: all. */
  readonly kinds?: readonly StubKind[];
  readonly does: Misbehaviour;
  readonly ends: RegExp | 'good';
  /** Frames that are as they should be before the fault; absent: none. llama-server's first one has no token. */
  readonly intact?: number;
}

const error = JSON.stringify({ error: { message: 'PROMPT', type: 'server_error', code: 500 } });
const usageless = (frame: Record<string, unknown>): unknown => ({ ...frame, usage: null });
const choice = (change: object) => (frame: Record<string, unknown>) => {
  const [first] = (frame['choices'] ?? []) as object[];
  return first ? { ...frame, choices: [{ ...first, ...change }] } : frame;
};
const usage = (change: object) => (frame: Record<string, unknown>) =>
  'usage' in frame ? { ...frame, usage: { ...(frame['usage'] as object), ...change } } : frame;
/** Of llama-server's second frame with a token. */
const second = (change: object) => (frame: Record<string, unknown>) =>
  frame['tokens_predicted'] === 2 ? { ...frame, ...change } : frame;
const meta = (change: object) => (frame: Record<string, unknown>) => ({
  ...frame,
  meta_info: { ...(frame['meta_info'] as object), ...change },
});

export const MISBEHAVIOURS: readonly Case[] = [
  { name: 'as documented', does: {}, ends: 'good' },
  { name: 'byte by byte', does: { cut: 'bytes' }, ends: 'good' },
  { name: 'all at once', does: { cut: 'whole' }, ends: 'good' },
  { name: 'with CRLF', does: { lineEnd: '\r\n' }, ends: 'good' },
  { name: 'the connection stays open after the end', does: { staysOpen: true }, ends: 'good' },
  { name: 'with unknown fields', does: { frame: (frame) => ({ ...frame, news: [1] }) }, ends: 'good' },
  { name: 'without its end token', kinds: ['vllm'], does: { noEndToken: true }, ends: 'good' },
  { name: 'new tokens alone', kinds: ['sglang'], does: { incremental: true }, ends: 'good' },
  { name: '429', does: { status: 429 }, ends: /^returned$/ },
  { name: '503', does: { status: 503 }, ends: /^returned$/ },
  { name: '400', does: { status: 400 }, ends: failed('the server answered 400') },
  { name: '401', does: { status: 401 }, ends: failed('the server answered 401') },
  { name: '500', does: { status: 500 }, ends: failed('the server answered 500') },
  { name: 'a redirect', does: { status: 302 }, ends: failed('the server answered 302') },
  { name: 'a reset before the headers', does: { resetAfter: 0 }, ends: /^returned$/ },
  {
    name: 'a reset after tokens',
    does: { resetAfter: 3 },
    intact: 3,
    ends: /^started:[01] a?b?c? ?failed\(the connection ended before the reply\)$/,
  },
  { name: 'no frame at all', does: { endAfter: 0 }, ends: failed('a stream without an end') },
  { name: 'an end without a finish reason', does: { endAfter: 2 }, intact: 2, ends: failed('a stream without an end') },
  {
    name: 'half a frame',
    does: { endAfter: 2, frames: { 1: 'half:data: {"a' } },
    intact: 1,
    ends: failed('half a frame'),
  },
  { name: 'no JSON', does: { frames: { 1: '<html>' } }, intact: 1, ends: failed('the server sent no JSON') },
  {
    name: 'a line without an end',
    does: { frames: { 1: `half:data: ${'x'.repeat(3 * 1024 * 1024)}` }, hangsAfter: 2 },
    intact: 1,
    ends: failed('the server sent too long a line'),
  },
  { name: 'JSON of another kind', does: { frames: { 1: '17' } }, intact: 1, ends: failed('.*') },
  { name: 'an error first', does: { frames: { 0: error } }, ends: failed('the server reports an error') },
  {
    name: 'an error after tokens',
    does: { frames: { 2: error } },
    intact: 2,
    ends: failed('the server reports an error'),
  },
  {
    name: 'an error and then [DONE]',
    does: { frames: { 1: error, 2: '[DONE]' } },
    intact: 1,
    ends: failed('the server reports an error'),
  },
  {
    name: '[DONE] after tokens',
    does: { frames: { 2: '[DONE]' }, endAfter: 3 },
    intact: 2,
    ends: failed('a stream without an end'),
  },
  {
    name: 'an abort as its reason',
    kinds: ['vllm'],
    does: { frame: choice({ finish_reason: 'abort' }) },
    intact: 1,
    ends: failed('the server aborted it'),
  },
  {
    name: 'an abort as its reason',
    kinds: ['sglang'],
    does: { frame: meta({ finish_reason: { type: 'abort', message: 'PROMPT' } }) },
    intact: 1,
    ends: failed('the server aborted it'),
  },
  {
    name: 'an unknown reason',
    kinds: ['vllm'],
    does: { frame: choice({ finish_reason: 'x' }) },
    intact: 1,
    ends: failed('an unknown end'),
  },
  {
    name: 'an unknown reason',
    kinds: ['sglang'],
    does: { frame: meta({ finish_reason: { type: 'x' } }) },
    intact: 1,
    ends: failed('an unknown end'),
  },
  {
    name: 'an unknown reason',
    kinds: ['llama-server'],
    does: { noEndToken: true, frame: (frame) => ('stop_type' in frame ? { ...frame, stop_type: 'none' } : frame) },
    intact: 4,
    ends: failed('an unknown end'),
  },
  {
    name: 'without usage',
    kinds: ['vllm'],
    does: { noEndToken: true, frame: usageless },
    intact: 3,
    ends: failed('a stream without an end'),
  },
  {
    name: 'without usage',
    kinds: ['sglang'],
    does: { frame: (frame) => ({ ...frame, meta_info: {} }) },
    ends: failed('a frame without tokens'),
  },
  {
    name: 'without usage',
    kinds: ['llama-server'],
    does: { noEndToken: true, frame: (frame) => ('stop_type' in frame ? { ...frame, tokens_evaluated: null } : frame) },
    intact: 4,
    ends: failed('an end without usage'),
  },
  {
    name: 'without token ids',
    kinds: ['vllm'],
    does: { frame: choice({ token_ids: null }) },
    ends: failed('a frame without tokens'),
  },
  {
    name: 'without token ids',
    kinds: ['llama-server', 'sglang'],
    does: { frame: (frame) => ({ ...frame, tokens: null, output_ids: null, prompt_progress: undefined }) },
    ends: failed('a frame without tokens|an unknown frame'),
  },
  {
    name: 'another prompt',
    kinds: ['sglang'],
    does: { frame: meta({ prompt_tokens: 4 }) },
    ends: failed('another number of prompt tokens'),
  },
  {
    name: 'another prompt',
    kinds: ['vllm'],
    does: {
      noEndToken: true,
      frame: (frame) => ('usage' in frame ? { ...frame, usage: { prompt_tokens: 9, completion_tokens: 4 } } : frame),
    },
    intact: 3,
    ends: failed('another number of prompt tokens'),
  },
  {
    name: 'another prompt',
    kinds: ['llama-server'],
    does: { frame: (frame) => ('prompt_progress' in frame ? { ...frame, prompt_progress: { total: 9 } } : frame) },
    ends: failed('another number of prompt tokens'),
  },
  {
    name: 'a count that falls',
    kinds: ['sglang'],
    does: { frame: meta({ completion_tokens: 1 }) },
    intact: 1,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'a count that falls',
    kinds: ['llama-server'],
    does: { frame: (frame) => ({ ...frame, tokens_predicted: 0 }) },
    intact: 1,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'too many tokens at the end',
    kinds: ['vllm'],
    does: { noEndToken: true, frame: usage({ completion_tokens: 1e9 }) },
    intact: 3,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'too many tokens at the end',
    kinds: ['llama-server'],
    does: { noEndToken: true, frame: (frame) => ('stop_type' in frame ? { ...frame, tokens_predicted: 1e9 } : frame) },
    intact: 4,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'too many tokens in a frame',
    kinds: ['llama-server'],
    does: { frame: second({ tokens_predicted: 1e9, content: 'x' }) },
    intact: 2,
    ends: failed('more tokens than were asked for'),
  },
  {
    name: 'too many tokens in a frame',
    kinds: ['sglang'],
    does: { frame: meta({ completion_tokens: 1e9 }) },
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'more tokens at the end than frames can leave out',
    kinds: ['vllm'],
    does: { noEndToken: true, frame: usage({ completion_tokens: 5 }) },
    intact: 3,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'fewer tokens at the end than came',
    kinds: ['vllm'],
    does: { noEndToken: true, frame: usage({ completion_tokens: 1 }) },
    intact: 3,
    ends: failed('a wrong count of tokens'),
  },
  {
    name: 'more text than so many tokens have',
    kinds: ['llama-server'],
    does: { frame: second({ tokens_predicted: 4, content: 'x'.repeat(100_000) }) },
    intact: 2,
    ends: failed('text that is not of its tokens'),
  },
  {
    name: 'less text than so many tokens have',
    kinds: ['llama-server'],
    does: { frame: second({ tokens_predicted: 9, content: 'x' }) },
    intact: 2,
    ends: failed('text that is not of its tokens'),
  },
  {
    name: 'more cached tokens than the prompt has',
    kinds: ['llama-server'],
    does: {
      frame: (frame) =>
        'prompt_progress' in frame
          ? { ...frame, prompt_progress: { ...(frame['prompt_progress'] as object), cache: 1e9 } }
          : frame,
    },
    ends: failed('a wrong count of cached tokens'),
  },
  {
    name: 'more cached tokens than the prompt has',
    kinds: ['vllm'],
    does: { noEndToken: true, frame: usage({ prompt_tokens_details: { cached_tokens: 1e9 } }) },
    intact: 3,
    ends: failed('a wrong count of cached tokens'),
  },
  {
    name: 'more cached tokens than the prompt has',
    kinds: ['sglang'],
    does: { frame: meta({ cached_tokens: 1e9 }) },
    ends: failed('a wrong count of cached tokens'),
  },
];

/** Tokens that come before the fault. */
export function tokensBefore({ intact = 0 }: Case, kind: StubKind): number {
  return kind === 'llama-server' ? Math.max(0, intact - 1) : intact;
}
