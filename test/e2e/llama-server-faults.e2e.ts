/** A llama-server behind the queue that is killed, hangs, and restarts with another model. Needs `make peers`. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kill } from 'node:process';
import t, { type Test } from 'tap';
import { LlamaServer } from '../../bench/support/peers.js';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { freePort } from '../support/free-port.js';
import { embeddedTestModel } from '../support/models.js';
import { Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';

t.setTimeout(300_000);

const MODEL = 'elsewhere';
const SEATS = 2;
const CONTEXT = 32_768;
const port = await freePort();
const own = await embeddedTestModel();

function serve(file = own): Promise<LlamaServer> {
  const more = ['--metrics', '--jinja'];
  return LlamaServer.start(file, { threads: 1, slots: SEATS, contextPerSlot: CONTEXT, more, port });
}

let server = await serve();
t.teardown(() => server.close());
const engine = { kind: 'llama-server', url: `http://127.0.0.1:${port}` };
const dataDir = await mkdtemp(join(tmpdir(), 'ra-elsewhere-'));
t.teardown(() => rm(dataDir, { recursive: true, force: true }));
const sidecar = await Sidecar.start(t, {
  config: {
    dataDir,
    models: [{ id: MODEL, kind: 'chat', file: own, seats: SEATS, contextPerSeat: CONTEXT, engine }],
    engine: { hangMs: 3000, backoffMinMs: 50, backoffMaxMs: 500 },
    queue: { maxWaitMs: 600_000 },
    development: { learnedQueue: false },
  },
});

/** A repetitive reply, so that no end token is sampled. */
const LONG = {
  messages: [{ role: 'user', content: 'Tell me a very long story.' }],
  max_completion_tokens: 12_000,
  temperature: 0,
  frequency_penalty: -2,
};
const SHORT = { messages: [{ role: 'user', content: 'Say hello.' }], max_completion_tokens: 5 };

/** How long the server is stopped, ms. */
const STOPPED_MS = 40_000;

interface Streamed {
  readonly requestId: string;
  readonly status: number;
  readonly errors: number;
  readonly ended: boolean;
}

/** Streams to the end; calls `first` with the first text. */
async function stream(body: object, first: () => void = () => undefined): Promise<Streamed> {
  const response = await sidecar.post('/chat/completions', { model: MODEL, stream: true, seed: 1, ...body });
  const chunks: Uint8Array[] = [];
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk as Uint8Array);
    // The first chunk has only the role.
    if (chunks.length === 2) first();
  }
  const text = Buffer.concat(chunks).toString();
  return {
    requestId: response.headers.get('x-request-id') ?? '',
    status: response.status,
    errors: text.split('\n\n').filter((frame) => frame.includes('"error"')).length,
    ended: text.includes('[DONE]'),
  };
}

/** What of an answer must be so, whatever its id. */
function outcome({ status, errors, ended }: Streamed): object {
  return { status, errors, ended };
}

const SERVED = { status: 200, errors: 0, ended: true };
const CUT = { status: 200, errors: 1, ended: false };

/** Each of these requests has one line that bills it, with such an outcome and some tokens, and no other has two. */
async function billedOnce(t: Test, streams: readonly Streamed[], outcome: string): Promise<void> {
  const { records, damage } = await readAll(join(dataDir, 'usage'));
  t.strictSame(damage, []);
  const closes = records.filter(({ kind }) => kind === 'close');
  t.equal(new Set(closes.map(({ id }) => id)).size, closes.length, 'nothing is billed twice');
  for (const { requestId } of streams) {
    const own = closes.filter((record) => record.requestId === requestId);
    t.strictSame(
      own.map((record) => record.outcome),
      [outcome],
    );
    t.ok(own.every(({ promptTokens, completionTokens }) => promptTokens > 0 && completionTokens > 0));
  }
}

/** Starts streams on all seats and resolves once each has text. */
async function busy(): Promise<Promise<Streamed>[]> {
  const all: Promise<Streamed>[] = [];
  for (let i = 0; i < SEATS; i += 1) await new Promise<void>((begun) => all.push(stream(LONG, begun)));
  return all;
}

t.test(
  'a killed server: one error frame for each stream, and waiting requests are served by its successor',
  async (t) => {
    const running = await busy();
    const waiting = Array.from({ length: SEATS }, () => stream(SHORT));
    await sidecar.reaches('ra_sidecar_waiting_requests', SEATS, { model: MODEL });
    await server.close();
    const cut = await Promise.all(running);
    t.strictSame(
      cut.map(outcome),
      cut.map(() => CUT),
    );
    server = await serve();
    const served = await Promise.all(waiting);
    t.strictSame(
      served.map(outcome),
      served.map(() => SERVED),
    );
    await billedOnce(t, cut, 'failed');
    await billedOnce(t, served, 'done');
  },
);

t.test('a server that is stopped for 40 s: one error frame each, and it is used again once it goes on', async (t) => {
  const running = await busy();
  const waiting = Array.from({ length: SEATS }, () => stream(SHORT));
  await sidecar.reaches('ra_sidecar_waiting_requests', SEATS, { model: MODEL });
  kill(server.pid, 'SIGSTOP');
  const goesOn = new Promise<void>((over) => setTimeout(over, STOPPED_MS)).then(() => kill(server.pid, 'SIGCONT'));
  const cut = await Promise.all(running);
  t.strictSame(
    cut.map(outcome),
    cut.map(() => CUT),
  );
  t.equal(await sidecar.metric('ra_sidecar_engine_state', { model: MODEL, state: 'ready' }), 0);
  await goesOn;
  const served = await Promise.all(waiting);
  t.strictSame(
    served.map(outcome),
    served.map(() => SERVED),
  );
  await billedOnce(t, cut, 'failed');
  await billedOnce(t, served, 'done');
});

t.test('another model at the same address is not used, and the reason is shown', async (t) => {
  const running = await busy();
  await server.close();
  server = await serve(EMBEDDED_MODEL);
  const cut = await Promise.all(running);
  t.strictSame(
    cut.map(outcome),
    cut.map(() => CUT),
  );
  await billedOnce(t, cut, 'failed');
  await sidecar.logged('engine lost', 1, ({ reason }) => String(reason).includes('the external server at '));
  const { body } = await sidecar.readyz(sidecar.operatorsPort);
  t.match(JSON.stringify(body), /the external server at /);
  t.equal((await sidecar.post('/chat/completions', { model: MODEL, ...SHORT })).status, 503);
  await server.close();
  server = await serve();
  await sidecar.reaches('ra_sidecar_engine_state', 1, { model: MODEL, state: 'ready' });
  const served = await stream(SHORT);
  t.strictSame(outcome(served), SERVED);
  await billedOnce(t, [served], 'done');
});
