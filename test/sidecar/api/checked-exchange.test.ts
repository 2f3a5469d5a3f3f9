import t, { type Test } from 'tap';
import { chatChunk, chunkHead, finishChunk, modelList, usageChunk } from '../../../sidecar/contracts/answers.js';
import { contractError, errorBody } from '../../../sidecar/domain/errors.js';
import { checkAnswers } from '../../../sidecar/api/checked-exchange.js';
import type { BodyPieces, EventStream, Exchange, Reply } from '../../../sidecar/http/exchange.js';
import type { Log } from '../../../sidecar/telemetry/logger.js';
import { exchangeWith, postHead } from '../../support/request-head.js';

const SECRET = 'c4nary';
const HEAD = chunkHead({ id: 'chatcmpl-1', created: 1, model: 'm', fingerprint: 'fp' });
const TEXT = chatChunk(HEAD, 0, 'content', SECRET);
const LAST = finishChunk(HEAD, 0, 'stop');
const USAGE = usageChunk(HEAD, { promptTokens: 1, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 });

const GETS = ['/v1/models', '/healthz', '/health', '/readyz'];

/** A checked exchange on `path`, its answers, and the log lines. */
function checked(path: string): { exchange: Exchange; sent: unknown[]; logged: unknown[] } {
  const sent: unknown[] = [];
  const logged: unknown[] = [];
  const stream: EventStream = {
    bytes: 7,
    event: (text) => sent.push(text),
    comment: (text) => sent.push(`: ${text}`),
    unread: () => 3,
    end: (timing) => sent.push({ timing }),
    fail: ({ code }, timing) => sent.push({ code, timing }),
  };
  const pieces: BodyPieces = {
    write: (text) => sent.push(text),
    drained: () => undefined,
    end: (text) => sent.push({ text }),
    abort: () => sent.push('aborted'),
  };
  const inner = exchangeWith({
    head: Object.assign(postHead(), { method: GETS.includes(path) ? 'GET' : 'POST', path, route: path }),
    reply: (reply) => sent.push(reply),
    fail: (error, headers) => sent.push({ error, headers }),
    stream: (headers) => (sent.push({ headers }), stream),
    pieces: (headers) => (sent.push({ headers }), pieces),
  });
  const error: Log['error'] = (event, fields) => logged.push({ event, ...fields });
  const none = (): void => void t.fail('only errors are logged');
  const log: Log = { error, warn: none, info: none, debug: none, forRequest: () => log };
  return { exchange: checkAnswers(log, 'strict')(inner), sent, logged };
}

/** Sends `reply`, which must pass unchanged; returns what was logged about it. */
function reasonOf(t: Test, path: string, reply: Reply): unknown {
  const { exchange, sent, logged } = checked(path);
  exchange.reply(reply);
  t.strictSame(sent, [reply], 'the caller gets the same');
  t.notMatch(JSON.stringify(logged), SECRET, 'no content');
  t.ok(logged.every((line) => (line as { event: string }).event === 'answer breaks its schema'));
  return logged.map((line) => (line as { reason: string }).reason);
}

const ready = (more = {}): string =>
  JSON.stringify({ status: 'ready', parts: { models: 'ready', usage: 'ready' }, ...more });

t.test('an answer in pieces is checked once it is whole, and passes as it comes', async (t) => {
  const { exchange, sent, logged } = checked('/v1/embeddings');
  const pieces = exchange.pieces({ a: 'b' });
  pieces.write('{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,');
  pieces.write('2]}');
  pieces.end('],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}');
  t.equal(sent.length, 4);
  t.same(
    logged.map((line) => (line as { reason: string }).reason),
    ['Embeddings: data[0].embedding[1] must be at most 1'],
  );
});

t.test('whole answers', async (t) => {
  const models = modelList([{ id: 'm', created: 1, ownedBy: 'us' }]);
  t.strictSame(reasonOf(t, '/v1/models', { status: 200, body: models }), []);
  t.strictSame(reasonOf(t, '/v1/models', { status: 200, body: models.replace('"us"', '7') }), [
    'ModelList: data[0].owned_by must be a string',
  ]);
  t.strictSame(reasonOf(t, '/v1/models', { status: 200, body: SECRET }), ['ModelList: is not JSON']);
  t.strictSame(reasonOf(t, '/v1/chat/completions', { status: 200, body: `{"${SECRET}":1}` }), [
    'ChatCompletion: id is required',
  ]);
  const answers = { [SECRET]: { type: 'choice', probabilities: { [SECRET]: 2, b: 0 }, label_mass: 1, choice: 'b' } };
  const usage = { prompt_tokens: 1, completion_tokens: 0, total_tokens: 1 };
  const decisions = { object: 'decisions', model: 'm', prompt_format_version: 1, answers, usage };
  t.strictSame(reasonOf(t, '/v1/decisions', { status: 200, body: JSON.stringify(decisions) }), [
    'Decisions: answers has an entry whose probabilities has an entry that must be at most 1',
  ]);
  t.strictSame(reasonOf(t, '/v1/systemone', { status: 200, body: '{}' }), ['SystemOne: id is required']);
  t.strictSame(reasonOf(t, '/healthz', { status: 200, body: '{"status":"ok"}' }), []);
  t.strictSame(reasonOf(t, '/healthz', { status: 200, body: '{"status":"fine"}' }), ['Health: status must be ok']);
  t.strictSame(reasonOf(t, '/health', { status: 503, body: '{"status":"draining"}' }), []);
  t.strictSame(reasonOf(t, '/readyz', { status: 200, body: ready() }), []);
  t.strictSame(reasonOf(t, '/readyz', { status: 503, body: ready({ reasons: [SECRET] }) }), [
    'Readiness: the body has a field outside the contract; its fields are status, parts',
  ]);
  t.strictSame(reasonOf(t, '/metrics', { status: 200, body: '# HELP' }), [], 'not the server’s own body');
  t.strictSame(reasonOf(t, '/v1/models', { status: 204 }), [], 'no body, nothing to check');
});

t.test('errors', async (t) => {
  const { exchange, sent, logged } = checked('/v1/models');
  const good = contractError('cold', 'Loading.');
  exchange.fail(good, { Allow: 'GET' });
  t.strictSame(logged, []);
  const bad = contractError('bad_request', '', { param: 'p' });
  exchange.fail(bad);
  t.strictSame(logged, [{ event: 'answer breaks its schema', reason: 'Error: error.message must not be empty' }]);
  t.strictSame(sent, [
    { error: good, headers: { Allow: 'GET' } },
    { error: bad, headers: undefined },
  ]);
});

t.test('streams', async (t) => {
  const failure = errorBody(contractError('bad_gateway', 'The engine failed.'));
  const after = 'stream: a frame follows the last one';
  const cases: [frames: string[], reasons: string[]][] = [
    [[TEXT, LAST, '[DONE]'], []],
    [[TEXT, LAST, USAGE, '[DONE]'], []],
    [[TEXT, failure], []],
    [[failure], []],
    [[TEXT.replace('"created":1', '"created":-1'), '[DONE]'], ['ChatCompletionChunk: created must be at least 0']],
    [[USAGE.replace(/"usage".*/, '"usage":{}}'), '[DONE]'], ['UsageChunk: usage.prompt_tokens is required']],
    [
      [LAST.replace('}]}', '}],"stray":1}'), '[DONE]'],
      [
        'ChatCompletionChunk: the body has a field outside the contract; its fields are id, object, created, model, system_fingerprint, choices',
      ],
    ],
    [[USAGE.replace(/,"usage".*/, '}'), '[DONE]'], ['UsageChunk: usage is required']],
    [[`{${SECRET}`, '[DONE]'], ['ChatCompletionChunk: is not JSON']],
    [['{"error":{}}'], ['Error: error.message is required']],
    [[TEXT], ['stream: it ends without [DONE] or an error frame']],
    [['[DONE]', LAST], [after]],
    [[failure, '[DONE]'], [after]],
  ];
  for (const [frames, reasons] of cases) {
    const { exchange, sent, logged } = checked('/v1/chat/completions');
    const stream = exchange.stream({ a: 'b' });
    stream.comment('keep-alive');
    for (const frame of frames) stream.event(frame);
    t.equal(stream.bytes, 7);
    stream.end('ra-ttft;dur=1');
    t.strictSame(sent, [{ headers: { a: 'b' } }, ': keep-alive', ...frames, { timing: 'ra-ttft;dur=1' }]);
    t.strictSame(
      logged,
      reasons.map((reason) => ({ event: 'answer breaks its schema', reason })),
      frames.join('\n'),
    );
  }
});

t.test('an error that ends a stream', async (t) => {
  const failure = contractError('bad_gateway', 'The engine failed.');
  for (const [before, error, reasons] of [
    [TEXT, failure, []],
    ['[DONE]', failure, ['stream: a frame follows the last one']],
    [TEXT, { ...failure, message: '' }, ['Error: error.message must not be empty']],
  ] as const) {
    const { exchange, sent, logged } = checked('/v1/chat/completions');
    const stream = exchange.stream();
    stream.event(before);
    stream.fail(error, 'ra-ttft;dur=1');
    t.strictSame(sent.slice(1), [before, { code: 'bad_gateway', timing: 'ra-ttft;dur=1' }]);
    t.strictSame(
      logged,
      reasons.map((reason) => ({ event: 'answer breaks its schema', reason })),
    );
  }
});
