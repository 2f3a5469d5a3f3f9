import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { chunksOf, contentOf, eventsOf, refusalOf } from '../support/replies.js';
import { RawConnection } from '../support/raw-http.js';
import { embeddedTestModel } from '../support/models.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const KEEP_ALIVE = ': keep-alive\n';
/** On a busy machine a token may take longer than the time between two comments. */
const COMMENTS_THEN_FRAMES = /^(: keep-alive\n)+(data: [^\n]+\n\n(: keep-alive\n\n)*)+$/;
const file = await embeddedTestModel();

/** One seat, and a context that a long prompt fits into. */
function startWith(config: Readonly<Record<string, unknown>>): Promise<Sidecar> {
  return Sidecar.start(t, {
    stub: true,
    config: {
      models: [{ id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 24_000 }],
      stream: { keepAliveMs: 100 },
      contract: 'compatible',
      ...config,
    },
  });
}

/**
 * Takes the only seat, and keeps it until released: a reward for repetition makes the model never end. The engine is stopped
 * meanwhile, so that it computes nothing that no test is about.
 */
async function holdSeat(sidecar: Sidecar): Promise<() => void> {
  const leave = new AbortController();
  const response = await sidecar.chat(
    { messages: [{ role: 'user', content: 'Hello' }], stream: true, temperature: 0, frequency_penalty: -2 },
    { signal: leave.signal },
  );
  // Until its first token, since a waiting stream has its head as well.
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let seen = ''; !seen.includes('data: ');) {
    const read = await reader?.read();
    if (read?.value === undefined) throw new Error('no seat was granted');
    seen += read.value;
  }
  const engine = sidecar.enginePid(CHAT);
  const goOn = (): boolean => sidecar.enginePid(CHAT) === engine && process.kill(engine, 'SIGCONT');
  t.teardown(goOn);
  process.kill(engine, 'SIGSTOP');
  return () => {
    leave.abort();
    goOn();
  };
}

async function begin(sidecar: Sidecar, path: string, more: object): Promise<RawConnection> {
  const connection = await RawConnection.open(sidecar.port);
  t.teardown(() => connection.close());
  const headers = { Authorization: `Bearer ${sidecar.key}`, 'Content-Type': 'application/json', TE: 'trailers' };
  return connection.request('POST', path, headers, JSON.stringify({ model: CHAT, stream: true, ...more }));
}

function ask(sidecar: Sidecar, prompt: string): Promise<RawConnection> {
  return begin(sidecar, '/v1/chat/completions', { messages: [{ role: 'user', content: prompt }], max_tokens: 4 });
}

t.test('a patient queue', async (t) => {
  const sidecar = await startWith({ queue: PATIENT_QUEUE });

  t.test('a stream that waits for a seat gets comments, then its tokens', async (t) => {
    const letGo = await holdSeat(sidecar);
    const waiting = await ask(sidecar, 'Hello');
    await waiting.until(`\r\n\r\nd\r\n${KEEP_ALIVE}\r\nd\r\n${KEEP_ALIVE}\r\n`);
    letGo();
    const { status, body, chunks, trailers } = await waiting.response();
    t.equal(status, 200);
    t.same(chunks.slice(0, 2), [KEEP_ALIVE, KEEP_ALIVE]);
    t.match(body, COMMENTS_THEN_FRAMES);
    t.not(contentOf(chunksOf(body)), '');
    t.match(trailers[0]?.join(': '), /^Server-Timing: ra-ttft;dur=[0-9.]+$/);
  });

  t.test('a stream is kept alive while its prompt is evaluated', async (t) => {
    const engine = sidecar.enginePid(CHAT);
    process.kill(engine, 'SIGSTOP');
    const connection = await ask(sidecar, 'Hello');
    await connection.until(KEEP_ALIVE);
    process.kill(engine, 'SIGCONT');
    const { body } = await connection.response();
    t.match(body, COMMENTS_THEN_FRAMES);
    t.not(contentOf(chunksOf(body)), '');
  });

  t.test(
    'a response is kept alive by events, and one whose engine ends has its failure as the last event',
    async (t) => {
      const engine = sidecar.enginePid(CHAT);
      const connection = await begin(sidecar, '/v1/responses', { input: 'Hello' });
      await connection.until('event: response.output_text.delta\n');
      process.kill(engine, 'SIGSTOP');
      await connection.until('event: keepalive\ndata: {"type":"keepalive","sequence_number":');
      process.kill(engine, 'SIGKILL');
      const { status, body, trailers } = await connection.response();
      t.equal(status, 200);
      t.notMatch(body, /^: keep-alive/m, 'no comments, which do not hold Codex');
      const [, name, data = '{}'] = [...body.matchAll(/^event: (.*)\ndata: (.*)$/gm)].at(-1) ?? [];
      t.equal(name, 'response.failed');
      t.match(JSON.parse(data), {
        type: 'response.failed',
        response: { status: 'failed', error: { code: 'server_error', message: /./ } },
        error: { code: 'bad_gateway' },
      });
      t.match(trailers[0]?.join(': '), /^Server-Timing: ra-ttft;dur=[0-9.]+$/);
      await sidecar.logged('engine forked', 2);
    },
  );
});

t.test('an impatient queue', async (t) => {
  const sidecar = await startWith({ queue: { maxWaitMs: 2000 } });
  const letGo = await holdSeat(sidecar);

  t.test('a stream that got no seat ends with one error frame, no [DONE], no trailer', async (t) => {
    const { status, body, trailers } = await (await ask(sidecar, 'Hello')).response();
    t.equal(status, 200);
    t.match(body, /^(: keep-alive\n)+: \n\ndata: [^\n]+\n\n: \r\n[^\n]+\n[^\n]+\n$/, 'comments, then one frame');
    const events = eventsOf(body);
    const error = await refusalOf(new Response(events[0]));
    t.match(error, { code: 'capacity_exceeded', type: 'capacity' });
    t.notOk(
      trailers.some(([name]) => name === 'Server-Timing'),
      'there was no first token',
    );
  });

  t.test('a whole reply that got no seat is refused, and its wait is in ra-queue', async (t) => {
    const response = await sidecar.chat({ messages: [{ role: 'user', content: 'Hello' }] });
    const timing = response.headers.get('server-timing') ?? '';
    const [, queueMs, admitMs] = /ra-queue;dur=([0-9.]+), ra-admit;dur=([0-9.]+)$/.exec(timing) ?? [];
    // The queue’s time begins with the place, before the prompt is tokenized.
    t.ok(Number(queueMs) + Number(admitMs) >= 1990, `waited as long as the queue allows: ${timing}`);
    t.ok(Number(admitMs) < Number(queueMs), 'which is not counted as the sidecar’s work');
    t.match(response.headers.get('access-control-expose-headers'), 'Server-Timing');
    t.match(response.headers.get('retry-after'), /^[0-9]+$/);
    t.match(await refusalOf(response), { status: 429, code: 'capacity_exceeded', type: 'capacity', param: null });
    letGo();
  });
});
