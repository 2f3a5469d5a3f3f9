/** Replies of any kind in the form of the Messages API: whole and streamed they are the same message, and its events come in order. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { MESSAGES_FORM, MessageStreamWriter, WholeMessageWriter } from '../../../sidecar/api/messages.js';
import type { CallPart, Finished, Piece, ReplyWriter } from '../../../sidecar/api/replies.js';
import type { RequestContext } from '../../../sidecar/api/request-context.js';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import { CATALOGUE, contractError, type ErrorCode } from '../../../sidecar/domain/errors.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';
import { collected, eventsOf, type Message, type MessageEvent } from '../../support/message-events.js';
import { plainText } from '../../support/texts.js';

type Part = { readonly piece: Piece } | { readonly call: CallPart };

interface Reply {
  readonly parts: readonly Part[];
  readonly end: Finished;
  readonly cached: number;
}

const PROMPT_TOKENS = 40;
const MOST_TOKENS = 9;

const text = plainText({ minLength: 1, maxLength: 6 });
const texts = fc.array(text, { minLength: 1, maxLength: 3 });

const words: fc.Arbitrary<Part[]> = fc
  .tuple(fc.constantFrom('content' as const, 'reasoning' as const), texts)
  .map(([channel, said]) => said.map((each) => ({ piece: { choice: 0, channel, text: each, tokens: 1 } })));

/** A call whose arguments come in parts; `cut`: without their end. */
const call = fc
  .tuple(fc.dictionary(text, fc.oneof(text, fc.integer(), fc.constant(null)), { maxKeys: 2 }), fc.nat(9), fc.boolean())
  .map(([given, at, cut]): Part[] => {
    const whole = JSON.stringify(given);
    const sent = cut ? whole.slice(0, -1) : whole;
    const first = { choice: 0, index: 0, name: 'look', arguments: sent.slice(0, at), tokens: 1 };
    return [{ call: first }, { call: { choice: 0, index: 0, arguments: sent.slice(at), tokens: 2 } }];
  });

const reply: fc.Arbitrary<Reply> = fc
  .record({
    parts: fc.array(fc.oneof(words, call), { maxLength: 4 }).map((all) => all.flat()),
    reason: fc.constantFrom('stop' as const, 'length' as const, 'tool_calls' as const),
    stop: fc.option(text),
    tokens: fc.integer({ min: 0, max: 2 * MOST_TOKENS }),
    thought: fc.nat(3),
    cached: fc.nat(PROMPT_TOKENS),
  })
  .map(({ parts, reason, stop, tokens, thought, cached }) => {
    const matchedStop = stop === null || reason !== 'stop' ? undefined : stop;
    const end = { choice: 0, reason, completionTokens: tokens, reasoningTokens: Math.min(thought, tokens) };
    return { parts, end: { ...end, ...(matchedStop !== undefined && { matchedStop }) }, cached };
  });

const HEAD = { id: `msg_${'0'.repeat(32)}`, model: 'm' };
const isBounded = (tokens: number): boolean => tokens >= MOST_TOKENS;

/** What a writer is given, and what it sends. */
function written(
  { parts, end, cached }: Reply,
  make: (context: RequestContext, clock: FakeClock) => ReplyWriter,
): string {
  const clock = new FakeClock();
  let sent = '';
  const nothing = (): void => undefined;
  const stream = {
    event: (data: string, name: string) => void (sent += `event: ${name}\ndata: ${data}\n\n`),
    end: nothing,
  };
  const context = {
    ...{ promptTokens: PROMPT_TOKENS, cachedTokens: cached, stream: () => stream, ended: nothing, onClose: nothing },
    ...{ times: { header: nothing, trailer: nothing }, reply: ({ body }: { body: string }) => void (sent = body) },
  };
  const writer = make(context as unknown as RequestContext, clock);
  for (const part of parts) {
    if ('piece' in part) writer.piece(part.piece);
    else writer.call(part.call);
  }
  writer.finished(end);
  const { completionTokens, reasoningTokens } = end;
  writer.done({ promptTokens: PROMPT_TOKENS, cachedTokens: cached, completionTokens, reasoningTokens });
  return sent;
}

/** Throws where the events are not in the order that clients of the API read. */
function holdOrder(events: readonly MessageEvent[]): void {
  let index = 0;
  let open: string | undefined;
  for (const [at, { name, data }] of events.entries()) {
    if (name !== data.type) throw new Error(`${name} is ${data.type}`);
    if (!validateAnswer('MessageEvent', data).ok) throw new Error(`${name} is not an event of the contract`);
    const last = events.length - 1;
    if ((name === 'message_start') !== (at === 0) || (name === 'message_stop') !== (at === last))
      throw new Error(`${name} at ${at}`);
    if ((name === 'message_delta') !== (at === last - 1)) throw new Error(`${name} at ${at}`);
    if (!name.startsWith('content_block')) continue;
    if (data['index'] !== index) throw new Error(`${name} of another block`);
    if ((name === 'content_block_start') !== (open === undefined)) throw new Error(`${name} at ${at}`);
    if (name === 'content_block_start') open = (data['content_block'] as { type: string }).type;
    if (name === 'content_block_stop') [open, index] = [undefined, index + 1];
  }
  if (open !== undefined) throw new Error('a block is open at the end');
}

const withoutIds = ({ content, ...message }: Message): unknown => ({
  ...message,
  content: content.map((block) => ({ ...block, id: undefined })),
});

t.test('a reply is the same message whole and streamed, but for calls that were cut', async (t) => {
  const seen = { calls: 0, cut: 0 };
  fc.assert(
    fc.property(reply, (given) => {
      const body = written(given, (context) => new WholeMessageWriter(context, HEAD, isBounded));
      const options = { isBounded, keepAliveMs: 1000 };
      const stream = written(given, (context, clock) => new MessageStreamWriter(context, HEAD, { ...options, clock }));
      const whole = JSON.parse(body) as Message;
      const outcome = validateAnswer('MessageObject', whole);
      if (!outcome.ok) throw new Error(`${outcome.path} ${outcome.message}`);
      const events = eventsOf(stream);
      holdOrder(events);
      const made = collected(events);
      // A client has the text of a call that was cut, and a whole reply leaves it out.
      const content = made.content.filter(({ input }) => typeof input !== 'string');
      seen.calls += content.filter(({ type }) => type === 'tool_use').length;
      seen.cut += made.content.length - content.length;
      assert.deepEqual(withoutIds({ ...made, content }), withoutIds(whole));
    }),
    { numRuns: rounds({ short: 60, long: 5000 }) },
  );
  t.ok(seen.calls > 20 && seen.cut > 20, JSON.stringify(seen));
});

t.test('what is left of limits, with the whole second in which all of it is there again', async (t) => {
  const now = new Date('2026-10-03T23:59:59.900Z');
  const fields = (resetMs: number) => MESSAGES_FORM.limitFields({ tokens: { limit: 3, remaining: 2, resetMs } }, now);
  t.strictSame(fields(100), {
    'anthropic-ratelimit-tokens-limit': '3',
    'anthropic-ratelimit-tokens-remaining': '2',
    'anthropic-ratelimit-tokens-reset': '2026-10-04T00:00:00Z',
  });
  t.match(fields(300), { 'anthropic-ratelimit-tokens-reset': '2026-10-04T00:00:01Z' }, 'not before it');
  t.strictSame(MESSAGES_FORM.limitFields({}, now), {}, 'no limit');
});

/** docs/compatible.md: the codes of each type. Repeated here, so that what clients act on cannot change unnoticed. */
const ERRORS: Readonly<Record<string, string>> = {
  invalid_request_error: 'bad_request context_length_exceeded unsupported_endpoint unprocessable',
  authentication_error: 'invalid_api_key expired_api_key revoked_api_key',
  billing_error: 'insufficient_credit',
  permission_error: 'model_not_entitled not_in_cohort account_frozen unattributed_key',
  not_found_error: 'not_found proxy_retired',
  conflict_error: 'idempotency_key_reused',
  request_too_large: 'payload_too_large',
  rate_limit_error: 'user_rate_limited quota_exceeded',
  api_error: 'request_cancelled internal',
  overloaded_error:
    'bad_gateway upstream_contract_violation cold draining spool_unhealthy gateway_unavailable control_plane_overloaded credit_gate_unavailable capacity_exceeded',
  timeout_error: 'timeout',
};

t.test('each error has its type, and the status of the catalogue but for two', async (t) => {
  const codes = Object.entries(ERRORS).flatMap(([type, all]) => all.split(' ').map((code) => [type, code] as const));
  t.strictSame(codes.map(([, code]) => code).sort(), Object.keys(CATALOGUE).sort());
  for (const [type, code] of codes) {
    const error = contractError(code as ErrorCode, 'Why.', { param: 'p' });
    const details = { error_code: code, param: 'p' };
    const message = error.retryAfterMs === undefined ? 'Why.' : 'Why. Please try again in 1s.';
    const text = { type: 'error', error: { type, message, details }, request_id: 'r' };
    t.strictSame(JSON.parse(MESSAGES_FORM.errorText(error, 'r')), text);
    const own: Readonly<Record<string, number>> = { unprocessable: 400, capacity_exceeded: 529 };
    t.equal(MESSAGES_FORM.statusOf(error), own[code] ?? error.status, code);
  }
  t.equal(MESSAGES_FORM.statusOf(contractError('idempotency_key_reused', 'Why.', { status: 422 })), 409);
});
