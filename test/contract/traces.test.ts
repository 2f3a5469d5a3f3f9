/**
 * Traces of requests that end in every way and at every point, received by a real OTLP receiver. The sidecar is real;
 * its engines are stubs that stop at chosen points.
 */
import t, { type Test } from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { decisionBody, chatBody, InProcess, type Options, systemOneBody } from '../support/in-process.js';
import { errorOf } from '../support/error-answer.js';
import { OtlpReceiver, type ReceivedTrace } from '../support/otlp-receiver.js';
import type { RawConnection } from '../support/raw-http.js';
import { isWhole, lasts, names, story } from '../support/traces.js';

const CHATS = '/v1/chat/completions';
const PARTS = ['receive', 'prepare', 'queue', 'prefill', 'decode', 'flush'];
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

const MODEL = { id: 'm', kind: 'chat', seats: 1 } as const;

interface Harness {
  readonly sidecar: InProcess;
  /** Begins a request under an id. */
  readonly begin: (id: string, body: object) => Promise<RawConnection>;
  /** The trace that the request’s log line names; awaited if it has not arrived. */
  readonly traced: (id: string) => Promise<ReceivedTrace>;
}

async function start(t: Test, config: Options['config'] = {}, models: Options['models'] = [MODEL]): Promise<Harness> {
  const receiver = await OtlpReceiver.start(t);
  const otlp = { endpoint: receiver.endpoint, metrics: false };
  const sidecar = await InProcess.start(t, {
    models,
    config: { telemetry: { otlp }, queue: PATIENT_QUEUE, ...config },
    traceLimits: { batchMs: 5 },
  });
  return {
    sidecar,
    begin: (id, body) => sidecar.begin(CHATS, body, { 'x-request-id': id }),
    traced: async (id) => {
      const line = await sidecar.seen('request', ({ requestId }) => requestId === id);
      const trace = await receiver.trace(String(line['span_id']));
      if (trace.server.traceId !== line['trace_id']) throw new Error('the log line names another trace');
      return trace;
    },
  };
}

/** The sidecar of the tests without their own configuration. Each leaves its seats free. */
const common = await start(t, { contract: 'compatible' }, [
  MODEL,
  { id: 'd', kind: 'decision', seats: 1 },
  { id: 'e', kind: 'embedding', seats: 1 },
  { id: 'r', kind: 'rerank', seats: 1 },
]);

t.test('an answered request has a span in each part', async (t) => {
  const { sidecar, traced } = common;
  const ask = async (id: string, path: string, body: object): Promise<ReceivedTrace> => {
    t.equal((await sidecar.post(path, body, { 'x-request-id': id })).status, 200, id);
    const trace = await traced(id);
    isWhole(t, trace);
    t.match(trace.server, { status: 0, attributes: { 'http.response.status_code': 200, 'ra_sidecar.phase': 'flush' } });
    return trace;
  };
  for (const stream of [true, false]) {
    const trace = await ask(`stream ${stream}`.replace(' ', '-'), CHATS, chatBody('m', 'slow', { stream }));
    t.strictSame(names(trace), PARTS, stream ? 'a stream' : 'a whole reply');
    t.ok(lasts(trace, 'decode') > 0);
  }
  for (const [path, body] of [
    ['/v1/responses', { model: 'm', input: 'Hello.' }],
    ['/v1/messages', { model: 'm', max_tokens: 8, messages: [{ role: 'user', content: 'Hello.' }] }],
  ] as const) {
    const trace = await ask(path.slice(4), path, body);
    t.strictSame(names(trace), PARTS, path);
    t.equal(trace.server.name, 'chat m');
  }
  for (const [path, body] of [
    ['/v1/decisions', decisionBody('d')],
    ['/v1/systemone', systemOneBody('d')],
  ] as const) {
    const trace = await ask(path.slice(4), path, body);
    t.strictSame(names(trace), ['receive', 'prepare', 'queue', 'prefill', 'flush'], path);
    t.equal(trace.server.name, 'decisions d');
  }
  // A list of two parts, between which it waits for its seat again.
  const list = Array.from({ length: 1100 }, () => [7, 8, 8, 8]);
  for (const [path, body, name] of [
    ['/v1/embeddings', { model: 'e', input: list }, 'embeddings e'],
    ['/v1/rerank', { model: 'r', query: 'a', documents: ['b'] }, 'embeddings r'],
  ] as const) {
    const trace = await ask(path.slice(4), path, body);
    t.strictSame(names(trace), ['receive', 'prepare', 'queue', 'prefill', 'flush'], path);
    t.equal(trace.server.name, name);
    t.ok(Number(trace.server.attributes['gen_ai.usage.input_tokens']) > 0);
  }
});

t.test('a disconnect is recorded in the request’s phase, and is not an error', async (t) => {
  const { sidecar, begin, traced } = common;
  const left = async (id: string, connection: RawConnection, ends: string, status: number): Promise<void> => {
    connection.close();
    const trace = await traced(id);
    isWhole(t, trace);
    t.strictSame(names(trace), PARTS.slice(0, PARTS.indexOf(ends) + 1), id);
    const attributes = { 'error.type': 'request_cancelled', 'ra_sidecar.phase': ends };
    t.match(trace.server, { status: 0, attributes: { ...attributes, 'http.response.status_code': status } }, id);
    t.match(story(trace).at(-1), { status: 0, attributes: { 'error.type': 'request_cancelled' } });
  };
  const handed = await begin('handed', chatBody('m', 'queued'));
  await sidecar.until('ra_sidecar_seats_busy{model="m"}', 1);
  const waiting = await begin('waiting', chatBody('m', 'echo'));
  await sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', 1);
  await left('waiting', waiting, 'queue', 499);
  await left('handed', handed, 'prefill', 499);
  const begun = await begin('begun', chatBody('m', 'begun', { stream: true }));
  await begun.until('begun');
  await left('begun', begun, 'decode', 200);
});

t.test('a refusal is recorded with its reason and phase', async (t) => {
  // One finds no place in the queue, and the other one waits in vain.
  const refused = { full: { waitingPerSeat: 0 }, wait: { waitingPerSeat: 1, maxWaitMs: 500 } };
  const last = { full: 'prepare', wait: 'queue' };
  for (const reason of ['full', 'wait'] as const) {
    const { sidecar, begin, traced } = await start(t, { queue: refused[reason] });
    await begin('holds', chatBody('m', 'hold'));
    await sidecar.until('ra_sidecar_seats_busy{model="m"}', 1);
    await begin(reason, chatBody('m', 'echo'));
    const trace = await traced(reason);
    isWhole(t, trace);
    const attributes = { 'error.type': 'capacity_exceeded', 'http.response.status_code': 429 };
    t.match(trace.server, { status: 0, attributes: { ...attributes, 'ra_sidecar.refusal.reason': reason } });
    t.equal(names(trace).at(-1), last[reason]);
  }
});

t.test(
  'an engine that is lost twice before the request began: two more attempts, and the lost ones are errors',
  async (t) => {
    const { sidecar, traced } = await start(t, { engine: { backoffMinMs: 1, backoffMaxMs: 1 } });
    const answer = await sidecar.post(CHATS, chatBody('m', 'segv'), { 'x-request-id': 'twice' });
    t.equal(answer.status, 502);
    t.match(errorOf(answer).message, /^The engine was lost each time before it began this request\./);
    const trace = await traced('twice');
    isWhole(t, trace);
    t.strictSame(names(trace), ['receive', 'prepare', 'queue', 'prefill', 'queue', 'prefill', 'queue']);
    const prefills = trace.parts.filter(({ name }) => name === 'prefill');
    for (const prefill of prefills) t.match(prefill, { status: 2, attributes: { 'error.type': 'bad_gateway' } });
    t.equal(trace.server.attributes['ra_sidecar.refusal.reason'], 'engine-lost');
  },
);

t.test('traceparent and tracestate as W3C’s recommendation defines them', async (t) => {
  const { sidecar, traced } = common;
  let asked = 0;
  const ask = async (headers: Readonly<Record<string, string>>): Promise<ReceivedTrace['server']> => {
    const id = `w3c-${(asked += 1)}`;
    await sidecar.post(CHATS, chatBody('m', 'echo'), { 'x-request-id': id, ...headers });
    return (await traced(id)).server;
  };
  const parent = (flags: string): string => `00-${TRACE}-${SPAN}-${flags}`;
  for (const flags of ['01', '03', 'ff']) {
    const server = await ask({ traceparent: parent(flags) });
    t.match(server, { traceId: TRACE, parentId: SPAN, traceState: '' }, `${flags}: sampled, whatever the other bits`);
  }
  const many = Array.from({ length: 33 }, (_, i) => `k${i}=v`);
  for (const [tracestate, kept] of [
    ['a=1,b=2', 'a=1,b=2'],
    ['tenant@vendor=x', 'tenant@vendor=x'],
    [' a=1 , b=2 ', 'a=1,b=2'],
    ['A=1,b=2', 'b=2'],
    ['no pair,b=2', 'b=2'],
    [many.join(','), many.slice(0, 32).join(',')],
    [`a=${'x'.repeat(600)}`, ''],
  ] as const) {
    const server = await ask({ traceparent: parent('01'), tracestate });
    t.equal(server.traceState, kept, tracestate.slice(0, 40));
    t.equal(server.parentId, SPAN, 'a malformed tracestate does not end the trace');
  }
  const alone = await ask({ tracestate: 'a=1' });
  t.match(alone, { parentId: '', traceState: '' }, 'tracestate is ignored without traceparent');
});

t.test(
  'of requests without a traceparent the configured share is traced; for others their caller decides',
  async (t) => {
    const { sidecar, traced } = common;
    const none = await InProcess.start(t, {
      models: [{ id: 'm', kind: 'chat' }],
      config: { telemetry: { otlp: { endpoint: 'http://127.0.0.1:9', samplePercent: 0, metrics: false } } },
    });
    await sidecar.post(CHATS, chatBody('m', 'echo'), { 'x-request-id': 'all' });
    await traced('all');
    for (const [id, headers] of [
      ['own', {}],
      ['unsampled', { traceparent: `00-${TRACE}-${SPAN}-00` }],
      ['random', { traceparent: `00-${TRACE}-${SPAN}-02` }],
    ] as const) {
      await none.post(CHATS, chatBody('m', 'echo'), { 'x-request-id': id, ...headers });
      const line = await none.seen('request', ({ requestId }) => requestId === id);
      t.match(line['span_id'], /^[0-9a-f]{16}$/, 'the log names the trace in any case');
      t.equal(line['trace_id'] === TRACE, 'traceparent' in headers, id);
    }
    await none.app.drain();
    t.notOk(
      none.lines.some(({ event }) => event === 'otlp export fails'),
      'no export failed, since none was tried',
    );
  },
);
