/**
 * Faults of a request before the queue: while its body is read, checked or tokenized. Its prompt host is stopped
 * meanwhile, so each of these lasts as long as a test needs.
 */
import t, { type Test } from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { holdError } from '../support/error-answer.js';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { childrenOf } from '../support/processes.js';
import { shareLanes } from '../support/shared-lanes.js';
import type { RawConnection } from '../support/raw-http.js';

shareLanes(t);

const CHAT = '/v1/chat/completions';
const SHORT = chatBody('chat', 'echo');
/** Long enough to be checked by a prompt host, not on the event loop. */
const INLINE_BYTES = 1024;
const LONG = chatBody('chat', 'echo', { messages: [{ role: 'user', content: 'word '.repeat(INLINE_BYTES / 4) }] });
const DRAINING = { status: 503, type: 'server_error', code: 'draining', retry: true, param: null };

async function start(t: Test, config: Readonly<Record<string, unknown>> = {}): Promise<InProcess> {
  return InProcess.start(t, {
    models: [{ id: 'chat', kind: 'chat', seats: 1 }],
    config: {
      bodies: { inlineBytes: INLINE_BYTES },
      // However long a host is stopped, none is killed for it.
      prompts: { silenceMs: 600_000 },
      queue: PATIENT_QUEUE,
      ...config,
    },
  });
}

/** Stops a lane’s prompt host, which all sidecars here share. Returns what continues it. */
function hold(lane: 'short' | 'long'): () => void {
  const hosts = childrenOf(process.pid).filter(({ command }) => command.includes(`prompts/host.js ${lane}`));
  const [host] = hosts;
  if (host === undefined || hosts.length > 1) throw new Error(`${hosts.length} hosts of the ${lane} lane`);
  process.kill(host.pid, 'SIGSTOP');
  return () => process.kill(host.pid, 'SIGCONT');
}

/** Sends a head and ten bytes of its body. Returns the connection and the rest of the body. */
async function halfSent(
  sidecar: InProcess,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly caller: RawConnection; readonly rest: string }> {
  const text = JSON.stringify(SHORT);
  const caller = await sidecar.connect();
  const framed = { ...JSON_HEADERS, ...headers, 'Content-Length': String(text.length) };
  caller.request('POST', CHAT, framed, text.slice(0, 10));
  return { caller, rest: text.slice(10) };
}

const posts = (sidecar: InProcess, count: number): Promise<void> =>
  sidecar.until('http_server_active_requests{http_request_method="POST",url_scheme="http"}', count);

const waiting = (sidecar: InProcess, count: number): Promise<void> =>
  sidecar.until('ra_sidecar_waiting_requests{model="chat",class="standard"}', count);

t.test('a caller that disconnects frees its key’s place at once', async (t) => {
  const sidecar = await start(t, { limits: { chat: { inFlight: 1 } } });
  // Refused for its model, a check that follows the key’s limits and needs no prompt host.
  const probe = async (): Promise<number> => (await sidecar.post(CHAT, chatBody('none', 'echo'))).status;
  const leaves = async (t: Test, caller: RawConnection, name: string, cancels: number): Promise<void> => {
    t.equal(await probe(), 429, 'it is the only one that its key may have in flight');
    const records = sidecar.spool.records.length;
    caller.close();
    t.match(await sidecar.seen('request', ({ requestId }) => requestId === name), { status: 499 });
    t.equal(await probe(), 403, 'another is admitted');
    t.equal(await sidecar.metric('ra_sidecar_cancels_total{model="chat",phase="waiting"}'), cancels);
    t.equal(await sidecar.metric('ra_sidecar_waiting_requests{model="chat",class="standard"}'), 0);
    t.equal(sidecar.spool.records.length, records, 'no engine got it');
  };

  await t.test('while its body is read', async (t) => {
    const { caller } = await halfSent(sidecar, { 'x-request-id': 'read' });
    await posts(sidecar, 1);
    await leaves(t, caller, 'read', 0);
    t.equal((await sidecar.post(CHAT, SHORT)).status, 200);
  });

  await t.test('while it is checked', async (t) => {
    t.equal((await sidecar.post(CHAT, LONG)).status, 200, 'the first long body starts the host');
    const goOn = hold('long');
    const caller = await sidecar.begin(CHAT, LONG, { 'x-request-id': 'checked' });
    await posts(sidecar, 1);
    await leaves(t, caller, 'checked', 0);
    goOn();
    t.equal((await sidecar.post(CHAT, LONG)).status, 200);
  });

  await t.test('while its prompt is tokenized', async (t) => {
    const goOn = hold('short');
    const caller = await sidecar.begin(CHAT, SHORT, { 'x-request-id': 'tokenized' });
    await waiting(sidecar, 1);
    await leaves(t, caller, 'tokenized', 1);
    goOn();
    t.equal((await sidecar.post(CHAT, SHORT)).status, 200);
  });
});

t.test('a drain begins while one body is half read and another’s prompt is tokenized', async (t) => {
  const sidecar = await start(t);
  const goOn = hold('short');
  const tokenized = await sidecar.begin(CHAT, SHORT);
  await waiting(sidecar, 1);
  const { caller: read, rest } = await halfSent(sidecar);
  await posts(sidecar, 2);
  const drained = sidecar.app.drain();
  holdError(t, 'tokenized, without its tokens', await tokenized.response(), DRAINING);
  holdError(t, 'half read, once it is whole', await read.send(rest).response(), DRAINING);
  await drained;
  goOn();
  t.strictSame(sidecar.spool.records, [], 'no engine got either');
});
