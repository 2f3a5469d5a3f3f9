/** The events of POST /v1/responses as OpenAI’s own client reads them: reasoning, a call, keep-alives, an early end. */
import OpenAI, { APIError } from 'openai';
import t from 'tap';
import { ResponseStreamWriter } from '../../../sidecar/api/responses.js';
import type { RequestContext } from '../../../sidecar/api/request-context.js';
import { contractError, type ContractError } from '../../../sidecar/domain/errors.js';
import type { FrameOptions } from '../../../sidecar/http/exchange.js';
import { PARAMS } from '../../support/chat-harness.js';
import { FakeClock } from '../../support/fake-clock.js';

const KEEP_ALIVE_MS = 1000;
const USAGE = { promptTokens: 3, cachedTokens: 1, completionTokens: 5, reasoningTokens: 2 };
const REQUEST = { model: 'm', input: 'hi' } as const;

/** A writer whose context keeps its frames. */
class Written {
  readonly clock = new FakeClock();
  readonly writer: ResponseStreamWriter;
  readonly #frames: string[] = [];
  readonly #context: { frames?: FrameOptions; hasEnded?: boolean };

  constructor() {
    const stream = {
      event: (text: string, name = '') => void this.#frames.push(`event: ${name}\ndata: ${text}\n\n`),
      comment: (text: string) => void this.#frames.push(`: ${text}\n`),
      end: () => undefined,
    };
    const nothing = (): void => undefined;
    const times = { trailer: nothing };
    const context: { frames?: FrameOptions } & object = Object.assign(
      { firstToken: nothing },
      { stream: () => stream, ended: nothing, onClose: nothing, times },
    );
    this.#context = context;
    const head = { id: 'resp_1', created: 1, model: 'm', params: { ...PARAMS, stream: true }, now: () => 2 };
    const options = { clock: this.clock, keepAliveMs: KEEP_ALIVE_MS };
    this.writer = new ResponseStreamWriter(context as unknown as RequestContext, head, options);
  }

  fail(error: ContractError): void {
    const { errorName = 'error', errorFrame } = this.#context.frames ?? {};
    this.#context.hasEnded = true;
    this.#frames.push(`event: ${errorName}\ndata: ${errorFrame?.(error) ?? ''}\n\n`);
  }

  get text(): string {
    return this.#frames.join('');
  }

  /** OpenAI’s client, whose request these frames answer. */
  get client(): OpenAI {
    const headers = { 'content-type': 'text/event-stream' };
    return new OpenAI({ apiKey: 'k', fetch: () => Promise.resolve(new Response(this.text, { headers })) });
  }
}

t.test('the client’s stream helper accepts a reply with reasoning, text and calls', async (t) => {
  const written = new Written();
  const { writer } = written;
  for (const text of ['So ', 'it is.']) writer.piece({ choice: 0, channel: 'reasoning', text, tokens: 1 });
  for (const text of ['Yes', '.']) writer.piece({ choice: 0, channel: 'content', text, tokens: 1 });
  writer.call({ choice: 0, index: 0, name: 'look', arguments: '{"at"', tokens: 1 });
  writer.call({ choice: 0, index: 0, arguments: ':1}', tokens: 1 });
  writer.finished({ choice: 0, reason: 'tool_calls', completionTokens: 5, reasoningTokens: 2 });
  writer.done(USAGE);

  const helper = written.client.responses.stream(REQUEST);
  let thought = '';
  helper.on('response.reasoning_text.delta', ({ delta }) => (thought += delta));
  const { output, output_text: said, usage, status } = await helper.finalResponse();
  t.equal(thought, 'So it is.');
  t.equal(said, 'Yes.');
  t.equal(status, 'completed');
  t.match(usage, { input_tokens: 3, output_tokens: 5, output_tokens_details: { reasoning_tokens: 2 } });
  t.match(output, [
    { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'So it is.' }], status: 'completed' },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Yes.' }] },
    { type: 'function_call', name: 'look', arguments: '{"at":1}' },
  ]);
});

t.test('a stream that ends early is the client’s typed error, streamed and with the helper', async (t) => {
  const written = new Written();
  written.writer.piece({ choice: 0, channel: 'reasoning', text: 'So ', tokens: 1 });
  written.fail(contractError('bad_gateway', 'The engine ended.'));
  const thrown = { code: 'bad_gateway', type: 'server_error', param: null, message: /The engine ended\./ };
  const types: string[] = [];
  const streamed = async (): Promise<void> => {
    for await (const { type } of await written.client.responses.create({ ...REQUEST, stream: true })) types.push(type);
  };
  await t.rejects(streamed(), thrown);
  t.equal(types.at(-1), 'response.reasoning_text.delta');
  const failure: unknown = await written.client.responses
    .stream(REQUEST)
    .finalResponse()
    .catch((error: unknown) => error);
  t.ok(failure instanceof APIError);
  t.match(failure, thrown);
});

/** The data of the last frame. */
function lastOf({ text }: Written): unknown {
  const [, data = ''] = /data: (.*)\n\n$/.exec(text) ?? [];
  return JSON.parse(data);
}

t.test('an early end is response.failed with the code by which clients decide whether to retry', async (t) => {
  for (const [error, code, message] of [
    [contractError('bad_gateway', 'The engine ended.'), 'server_error', 'The engine ended.'],
    [contractError('context_length_exceeded', 'Too long.'), 'context_length_exceeded', 'Too long.'],
    [contractError('unprocessable', 'No.'), 'invalid_prompt', 'No.'],
    [contractError('insufficient_credit', 'Pay.'), 'insufficient_quota', 'Pay.'],
    [
      contractError('capacity_exceeded', 'Full.', { retryAfterMs: 1500 }),
      'rate_limit_exceeded',
      'Full. Please try again in 2s.',
    ],
  ] as const) {
    const written = new Written();
    written.writer.piece({ choice: 0, channel: 'reasoning', text: 'So', tokens: 1 });
    written.writer.piece({ choice: 0, channel: 'content', text: 'Yes', tokens: 1 });
    written.fail(error);
    t.match(lastOf(written), {
      type: 'response.failed',
      sequence_number: 11,
      response: { status: 'failed', error: { code, message }, output: [{ type: 'reasoning' }], usage: null },
      error: { code: error.code, message: error.message },
    });
    t.match(written.text, /\n\nevent: response\.failed\ndata: \{"type":"response\.failed"/);
  }
});

t.test('a keep-alive before the first token sends the first events, later ones are events of their own', async (t) => {
  const written = new Written();
  written.clock.advance(KEEP_ALIVE_MS);
  t.match(
    written.text,
    /^event: response\.created\ndata: \{"type":"response\.created".*\n\nevent: response\.in_progress\ndata: \{"type":"response\.in_progress".*\n\n$/,
  );
  written.clock.advance(KEEP_ALIVE_MS);
  t.match(written.text, /\n\nevent: keepalive\ndata: \{"type":"keepalive","sequence_number":2\}\n\n$/);
  written.fail(contractError('timeout', 'Too late.'));
  written.clock.advance(KEEP_ALIVE_MS);
  t.match(written.text, /\n\nevent: response\.failed\n.*\n\n$/, 'none behind the end, while its record is written');
  const failure = written.client.responses.stream(REQUEST).finalResponse();
  await t.rejects(failure, { code: 'timeout', message: /Too late\./ });
});
