import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { OpenStream, SHORT } from '../support/open-stream.js';
import { mappedFiles, memberNamed } from '../support/processes.js';
import { recursingModel } from '../support/prompt-models.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { LONG_LANE, SHORT_LANE } from '../support/process-gate.js';

/** Longer bodies use the long lane. */
const INLINE_BYTES = 1024;
const RECURSING = 'recursing';
const INTERNAL = { code: 'internal', type: 'server_error' };

t.test('the prompt host', async (t) => {
  const { models } = await chatOnly(2, 8192);
  const recursing = { id: RECURSING, kind: 'chat', seats: 1, contextPerSeat: 100_000, gpu: false };
  const sidecar = await Sidecar.start(t, {
    stub: true,
    ownGroup: true,
    config: {
      models: [...models, { ...recursing, file: await recursingModel() }],
      // A busy machine may take long; in these tests hosts end by signals, not by the silence limit.
      prompts: { silenceMs: 600_000 },
      queue: PATIENT_QUEUE,
      bodies: { inlineBytes: INLINE_BYTES },
    },
  });
  const restarts = (): Promise<number> => sidecar.metric('ra_sidecar_prompt_host_restarts_total');
  const ask = (content: string): Promise<Response> =>
    sidecar.post('/chat/completions', { ...SHORT, model: RECURSING, messages: [{ role: 'user', content }] });
  // It has its seat and its tokens, so the host does not matter to it.
  const running = await OpenStream.begin(sidecar);

  await t.test('killed while idle: the next request uses the next host', async (t) => {
    const first = memberNamed(sidecar.pid, SHORT_LANE);
    process.kill(first, 'SIGKILL');
    // Before this line a request could be sent to the ended host and would be taken for the cause.
    t.match(await sidecar.logged('prompt host restarts'), { lane: 'short', reason: 'died' });
    t.equal((await sidecar.chat(SHORT)).status, 200);
    t.equal(await restarts(), 1);
    t.not(memberNamed(sidecar.pid, SHORT_LANE), first);
  });

  await t.test('killed during a large body: that request fails, those after it are answered', async (t) => {
    const large = ask('Lorem ipsum dolor sit amet. '.repeat(500_000));
    // Its place in the queue is taken after the body’s check and before its tokens.
    await counted(sidecar, 'waiting_requests', 1, { model: RECURSING });
    const behind = sidecar.chat({ ...SHORT, messages: [{ role: 'user', content: 'Lorem ipsum. '.repeat(100) }] });
    process.kill(memberNamed(sidecar.pid, LONG_LANE), 'SIGKILL');
    const failed = await large;
    t.equal(failed.status, 500);
    t.match(await failed.json(), { error: INTERNAL });
    t.match(await sidecar.logged('prompt failed'), {
      level: 50,
      reason: 'died',
      requestId: failed.headers.get('x-request-id'),
    });
    t.equal((await behind).status, 200);
    t.equal(await restarts(), 2);
  });

  await t.test('ended by what it tokenizes: the same', async (t) => {
    // llama.cpp’s regular expressions for this vocabulary recurse once per letter.
    const [deadly, behind] = await Promise.all([ask('a'.repeat(2_000_000)), sidecar.chat(SHORT)]);
    t.equal(deadly.status, 500);
    t.match(await deadly.json(), { error: INTERNAL });
    t.equal(behind.status, 200);
    t.equal((await ask('Hello')).status, 200);
    t.equal(await restarts(), 3);
  });

  await t.test('and the sidecar loads no native llama code', (t) => {
    const native = (pid: number): string[] => mappedFiles(pid).filter((path) => /llama|ggml/.test(path));
    t.not(native(memberNamed(sidecar.pid, SHORT_LANE)).length, 0, 'found where it is expected');
    t.strictSame(native(sidecar.pid), []);
    t.end();
  });

  running.leave();
  await counted(sidecar, 'seats_busy', 0);
  await counted(sidecar, 'seats_busy', 0, { model: RECURSING });
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total'), 0);
});
