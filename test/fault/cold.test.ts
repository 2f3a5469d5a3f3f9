import { createHash } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { mkdtemp, open, rename, rm, stat, truncate, writeFile, copyFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { changedWithin, fileKey } from '../../engine/protocol/file-key.js';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import { brokenModel } from '../support/broken-models.js';
import { PATIENT_QUEUE, REFUSES_COLD } from '../support/config-parts.js';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel, testModel } from '../support/models.js';
import { cases, LONG } from '../support/long-form.js';
import { SHORT } from '../support/open-stream.js';
import { eventually, groupMembers } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar, type LogLine } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-cold-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

t.test('while its model loads a sidecar reports that, and then serves', async (t) => {
  // The development key is printed only once all models are ready, so the test brings its own key.
  const { key, stored } = makeKey();
  const keys = { file: join(await folder(t), 'keys.json') };
  await writeKeyFile(keys.file, { version: 1, keys: [stored] });
  const gate = new ProcessGate(t, { stub: true });
  gate.close(ENGINE);
  const { environment } = gate;
  const sidecar = await Sidecar.start(t, {
    stub: true,
    early: true,
    environment,
    config: { ...(await chatOnly(1)), keys, queue: REFUSES_COLD },
  });
  const { goOn } = await gate.stopped();

  for (const port of [sidecar.port, sidecar.operatorsPort])
    t.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200, 'the process is alive');
  const starting = { status: 'starting', parts: { models: 'starting', usage: 'ready' } };
  t.strictSame(await sidecar.readyz(), { status: 503, body: starting }, 'others see no more');
  t.match(await sidecar.readyz(sidecar.operatorsPort), { status: 503, body: { reasons: [`cold: ${CHAT}`] } });
  for (const stream of [false, true]) {
    const refused = await sidecar.post('/chat/completions', { ...SHORT, stream }, { key });
    t.equal(refused.status, 503);
    t.match(await refused.json(), { error: { code: 'cold', type: 'server_error' } });
    t.match(refused.headers.get('retry-after'), /^[1-9][0-9]*$/);
    t.match(refused.headers.get('retry-after-ms'), /^[1-9][0-9]*$/);
    t.ok(refused.headers.get('x-request-id'));
  }
  const wrong = await sidecar.post('/chat/completions', SHORT, { key: 'ra-test-unknown' });
  t.equal(wrong.status, 401, 'without a key the answer does not show what is loaded');

  goOn();
  await sidecar.until(() => sidecar.printed.includes('is ready at'), 'ready');
  for (const port of [sidecar.port, sidecar.operatorsPort]) t.equal((await sidecar.readyz(port)).status, 200);
  t.equal((await sidecar.post('/chat/completions', SHORT, { key })).status, 200);
});

t.test('a model that cannot be served ends the start with one clear line', async (t) => {
  const dir = await folder(t);
  const half = join(dir, 'half.gguf');
  await copyFile(await embeddedTestModel(), half);
  const file = await open(half);
  const { size } = await file.stat();
  await file.close();
  await truncate(half, Math.floor(size / 2));
  const none = join(dir, 'none.gguf');
  await writeFile(none, 'not a model');

  // engine-load.test.ts tests what an engine process reports of damaged files.
  for (const file of cases([half, none, join(dir, 'missing.gguf')], (_, index) => index === 0)) {
    await t.test(file.slice(dir.length + 1), async (t) => {
      const models = [{ id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 2048 }];
      const sidecar = await Sidecar.launch(t, { ownGroup: true, config: { models } });
      t.strictSame(await sidecar.exited(), { code: 1, signal: null });
      const lines = sidecar.printed.trim().split('\n');
      t.equal(lines.length, 1, sidecar.printed);
      t.ok(lines[0]?.startsWith(`ra-sidecar: model ${CHAT} cannot be served from ${file}: `), sidecar.printed);
      await eventually('nothing left running', () => groupMembers(sidecar.pid).length === 0);
    });
  }
});

/** Why a model with 256 seats of a million tokens each is not loaded. */
const MEMORY_NUMBERS =
  /it needs [\d.,]+ GiB of memory \(weights .* for 256 seats of 1,048,576 tokens.*\) and .* GiB are free/;

t.test('a model that needs more memory than is free ends the start with the numbers', async (t) => {
  const models = [{ id: CHAT, kind: 'chat', file: await embeddedTestModel(), seats: 256, contextPerSeat: 1_048_576 }];
  const sidecar = await Sidecar.launch(t, { ownGroup: true, config: { models } });
  t.strictSame(await sidecar.exited(), { code: 1, signal: null });
  t.match(sidecar.printed, MEMORY_NUMBERS);
  t.match(sidecar.printed, /at most \d+ seats?/);
  t.equal(sidecar.printed.trim().split('\n').length, 1, sidecar.printed);
  t.equal(sidecar.lines.filter(({ event }) => event === 'engine forked').length, 1, 'no second try');
  await eventually('nothing left running', () => groupMembers(sidecar.pid).length === 0);
});

t.test('a model on which llama.cpp aborts is given up after three loads', async (t) => {
  const file = await brokenModel(await folder(t), 'with absurdly many layers');
  const models = [{ id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 256 }];
  const sidecar = await Sidecar.launch(t, { ownGroup: true, config: { models, engine: { backoffMinMs: 10 } } });
  t.strictSame(await sidecar.exited(), { code: 1, signal: null });
  // The assertion may come before it: the prompt host shares the sidecar’s stderr.
  t.match(sidecar.printed, /^ra-sidecar: model .* llama\.cpp ended each of 3 loads by a crash \(aborted: /m);
  t.equal(sidecar.lines.filter(({ event }) => event === 'engine forked').length, 3);
  t.match(await sidecar.logged('engine lost'), { signal: 'SIGABRT', reason: 'aborted: assertion' });
});

t.test('one sidecar of three models, each of which is lost in its way', async (t) => {
  const dir = await folder(t);
  const [file, cut] = [join(dir, 'model.gguf'), join(dir, 'cut.gguf')];
  await copyFile(await embeddedTestModel(), file);
  await copyFile(await testModel(), cut);
  const seat = { kind: 'chat', seats: 1, contextPerSeat: 2048 };
  const big = { ...seat, file, seats: 256, contextPerSeat: 1_048_576, load: 'lazy' };
  const models = [
    { ...seat, id: CHAT, file },
    { ...seat, id: 'cut', file: cut },
    { ...big, id: 'big' },
  ];
  const sidecar = await Sidecar.start(t, { config: { models, queue: PATIENT_QUEUE } });
  const of = (model: string) => (line: LogLine) => line['model'] === model;
  const forks = (model: string): number =>
    sidecar.lines.filter((line) => line.event === 'engine forked' && of(model)(line)).length;

  await t.test(
    'a lazy one that needs more memory than is free is refused alone, and not tried each time',
    async (t) => {
      const ask = (): Promise<Response> => sidecar.chat({ ...SHORT, model: 'big' });
      const first = await ask();
      t.equal(first.status, 503);
      t.match(await first.json(), { error: { code: 'cold' } }, 'once its load has failed, not after the longest wait');
      const line = await sidecar.logged('engine lost', 1, of('big'));
      t.match(line['reason'], MEMORY_NUMBERS);
      for (let i = 0; i < 3; i += 1) t.equal((await ask()).status, 503);
      t.ok(forks('big') <= 2, `${forks('big')} tries`);
      t.equal((await sidecar.readyz()).status, 200);
      t.equal((await sidecar.chat(SHORT)).status, 200, 'the other models serve');
    },
  );

  await t.test('one that is damaged while it is served: cold, lost with its reason, and no restart loop', async (t) => {
    // Replaced, not overwritten: the engine has the old one mapped.
    await copyFile(await brokenModel(dir, 'cut in the tensor data'), `${file}.new`);
    await rename(`${file}.new`, file);
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    const line = await sidecar.logged('engine cannot serve its model', 1, of(CHAT));
    t.match(line, { reason: /^unable: the file is cut off: / });
    const unhealthy = { status: 'unhealthy', parts: { models: 'unhealthy', usage: 'ready' } };
    t.strictSame(await sidecar.readyz(), { status: 503, body: unhealthy }, 'others see nothing of the file');
    const { status, body } = await sidecar.readyz(sidecar.operatorsPort);
    t.equal(status, 503);
    const { reasons } = body as { readonly reasons: readonly string[] };
    t.ok(
      reasons.some((reason) => reason.startsWith(`lost: ${CHAT}: the file is cut off: `)),
      reasons.join(),
    );
    const refused = await sidecar.chat(SHORT);
    t.equal(refused.status, 503);
    t.match(await refused.json(), { error: { code: 'cold' } });
    t.match(refused.headers.get('retry-after'), /^[1-9][0-9]*$/);
    t.equal(forks(CHAT), 2);
  });

  await t.test('a file that is truncated under its engine: first a lost engine, then the file’s fault', async (t) => {
    await truncate(cut, 4096);
    const response = await sidecar.chat({ ...SHORT, model: 'cut' });
    // Reading a page that no longer exists is a SIGBUS, before or after the reply has begun.
    t.ok([502, 503, 429].includes(response.status), `${response.status}`);
    t.match(await sidecar.logged('engine lost', 1, of('cut')), { reason: 'crashed', signal: 'SIGBUS' });
    const line = await sidecar.logged('engine cannot serve its model', 1, of('cut'));
    t.match(line, { reason: /^unable: the file is / });
  });
});

/** Of a sparse file, whose zeros after the tensors take no place on the disk. */
const LARGE_BYTES = (LONG ? 8 : 0.125) * 2 ** 30;

/** A start keeps the hash of a file that was not changed for so long, ms. */
const SETTLED_MS = 2000;

t.test(
  'a large file: its engine is forked before its hash is known, and the next start reads nothing of it',
  async (t) => {
    const dir = await folder(t);
    const [file, dataDir] = [join(dir, 'large.gguf'), join(dir, 'data')];
    await copyFile(await testModel(), file);
    await truncate(file, LARGE_BYTES);
    await eventually('it is an old file', () => !changedWithin(fileKey(file) ?? '', SETTLED_MS));
    const models = [{ id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 2048 }];
    /** `forkedAt`: Unix time, ms; `read`: bytes that the sidecar's process read, all of its threads. */
    const serve = async (): Promise<{ forkedAt: number; version: string; read: number }> => {
      const from = Date.now();
      const sidecar = await Sidecar.start(t, { config: { dataDir, models } });
      const forkedAt = Date.parse(String((await sidecar.logged('engine forked'))['time']));
      t.comment(`${LARGE_BYTES / 2 ** 30} GiB: the engine is forked after ${forkedAt - from} ms`);
      const reply = (await (await sidecar.chat(SHORT)).json()) as { metadata: { weight_version: string } };
      const [, read] = /^rchar: ([0-9]+)$/m.exec(readFileSync(`/proc/${sidecar.pid}/io`, 'latin1')) ?? [];
      sidecar.child.kill('SIGTERM');
      await sidecar.exited();
      return { forkedAt, version: reply.metadata.weight_version, read: Number(read) };
    };
    const first = await serve();
    t.ok((await stat(join(dataDir, 'weights.json'))).mtimeMs > first.forkedAt, 'it was hashed beside the load');
    t.ok(first.read > LARGE_BYTES, `${first.read} bytes`);
    const second = await serve();
    t.ok(second.read < LARGE_BYTES / 4, `${second.read} bytes`);
    const hash = createHash('sha256');
    for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
    const version = hash.digest('hex');
    t.strictSame([first.version, second.version], [version, version]);
  },
);
