/** New weights replace those of a model that serves, replica by replica, on real engines. */
import { copyFile, rename, writeFile, readFile } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { CHAT_TEMPLATE } from '../../bench/models/chat-template.js';
import { ensureModel } from '../../bench/models/embedded.js';
import { planFor } from '../../bench/models/recipes.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { embeddedTestModel, testModel } from '../support/models.js';
import { runHere } from '../support/command-here.js';
import { rounds } from '../support/long-form.js';
import { ENDLESS, frames, OpenStream } from '../support/open-stream.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

const REPLICAS = 2;
/** More than the seats of one replica, which serves alone while the other one is replaced. */
const CALLERS = 3;
/** Between two requests of a caller, ms: without it they would take the processor time that the reload needs. */
const PAUSE_MS = 20;
/** Requests under reloads. */
const REQUESTS = rounds({ short: 40, long: 10_000 });
const KEY = 'k'.repeat(32);

interface Answer {
  readonly system_fingerprint: string;
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly metadata: {
    readonly weight_version: string;
    readonly weight_versions: readonly { readonly version: string; readonly start: number; readonly end: number }[];
  };
}

const folder = t.testdir();
const file = join(folder, 'served.gguf');
const secretFile = join(folder, 'operators');
await copyFile(await embeddedTestModel(), file);
await writeFile(secretFile, KEY);
/** As `tiny`, with another chat template. */
const plan = planFor('tiny');
const template = { type: 'string', value: `Other. ${CHAT_TEMPLATE}` } as const;
const metadata = new Map([...plan.vocabulary.metadata, ['tokenizer.chat_template', template] as const]);
const other = await ensureModel(folder, { ...plan, name: 'other', vocabulary: { ...plan.vocabulary, metadata } });
/** A copy that is written to. */
const second = join(folder, 'second.gguf');
await copyFile(await testModel(), second);
const versions = { embedded: await hash(file), tiny: await hash(await testModel()), other: await hash(other) };

const sidecar = await Sidecar.start(t, {
  config: {
    operators: { host: '127.0.0.1', port: 0, secretFile },
    models: [
      {
        id: CHAT,
        kind: 'chat',
        file,
        gpu: false,
        threads: 1,
        seats: 2,
        contextPerSeat: 1024,
        replicas: REPLICAS,
        prefixReuse: 'any',
      },
      {
        ...{ id: DECIDE, kind: 'decision', file: await embeddedTestModel(), load: 'lazy' },
        ...{ gpu: false, threads: 1, seats: 1, contextPerSeat: 512 },
      },
    ],
    queue: { ...PATIENT_QUEUE, waitingPerSeat: 1000 },
    // A reload that takes long on a loaded machine would let the callers reach it.
    limits: { chat: { perMinute: 0 }, decisions: { perMinute: 0 } },
    development: { validateAnswers: true, learnedQueue: false },
  },
});

async function hash(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

async function reload(
  more: object = {},
  headers: Readonly<Record<string, string>> = { authorization: `Bearer ${KEY}` },
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/models/reload`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: CHAT, ...more }),
  });
  return { status: response.status, body: await response.json() };
}

const LONG = { messages: [{ role: 'user', content: 'What is known of it? '.repeat(30) }], max_tokens: 2 };

async function ask(body: Readonly<Record<string, unknown>> = LONG): Promise<Answer> {
  const response = await sidecar.chat(body);
  t.equal(response.status, 200);
  return (await response.json()) as Answer;
}

t.test('it needs the operators’ key, even on loopback', async (t) => {
  t.match(await reload({}, {}), { status: 401, body: { error: { code: 'invalid_api_key' } } });
  t.match(await reload({}, { authorization: `Bearer ${'x'.repeat(32)}` }), { status: 401 });
  t.match(await reload({ model: 'none' }), { status: 404 });
  t.match(await reload({ file: 'relative.gguf' }), { status: 400, body: { error: { param: 'file' } } });
  t.match(await reload({ file: join(folder, 'none.gguf') }), {
    status: 422,
    body: { error: { message: /cannot be read/ } },
  });
  t.match(await reload(), { status: 200, body: { replicas: 0, weight_version: versions.embedded } });
});

t.test('the command sends the key, and prints how it ended', async (t) => {
  const port = String(sidecar.operatorsPort);
  const there = { RA_OPERATORS_PORT: port, RA_OPERATORS_SECRET_FILE: secretFile, RA_DATA_DIR: folder };
  const done = await runHere(['models', 'reload', CHAT], there);
  t.match(done, { code: 0, stdout: `${CHAT} serves ${versions.embedded} from ${file}: all replicas had it\n` });
  const failed = await runHere(['models', 'reload', CHAT, '--file', join(folder, 'none.gguf')], there);
  t.match(failed, { code: 1, stdout: '', stderr: /ra-tiny-chat was not reloaded: .*none.gguf cannot be read/ });
  const keyless = await runHere(['models', 'reload', CHAT], { RA_OPERATORS_PORT: port, RA_DATA_DIR: folder });
  t.match(keyless, { code: 1, stderr: /was not reloaded: Send one of the operators’ keys/ });
  const nowhere = await runHere(['models', 'reload', CHAT], { RA_OPERATORS_PORT: '1', RA_DATA_DIR: folder });
  t.match(nowhere, { code: 1, stderr: /no sidecar answers at 127.0.0.1:1 \(ECONNREFUSED\)/ });
});

t.test('a file of which no engine can be made changes nothing', async (t) => {
  const bad = join(folder, 'bad.gguf');
  await writeFile(bad, 'GGUF and then nothing');
  t.match(await reload({ file: bad }), { status: 422 });
  t.equal((await ask()).metadata.weight_version, versions.embedded);
});

/** The prompt's tokens by version, as far as it is known: the other template adds some. */
async function promptTokens(): Promise<number> {
  return (await ask({ ...ENDLESS, max_tokens: 1 })).usage.prompt_tokens;
}

t.test('a running stream ends with the weights that it began with, and none of their state is reused', async (t) => {
  await ask();
  t.ok((await ask()).usage.prompt_tokens_details.cached_tokens > 0, 'the same prompt is reused');
  const running = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 600 });
  const given = await testModel();
  t.match(await reload({ file: given }), {
    status: 200,
    body: { replicas: REPLICAS, weight_version: versions.tiny, file: given },
  });
  t.match(await sidecar.logged('weights reloaded', REPLICAS), { model: CHAT, version: versions.tiny });
  const after = await ask();
  t.equal(after.metadata.weight_version, versions.tiny);
  t.equal(after.usage.prompt_tokens_details.cached_tokens, 0);
  const chunks = frames(await running.response);
  t.equal(chunks.at(-1), '[DONE]');
  const prints = new Set(chunks.slice(0, -1).map((chunk) => (JSON.parse(chunk) as Answer).system_fingerprint));
  t.strictSame([...prints], [`fp_${versions.embedded.slice(0, 12)}`]);
});

t.test('under load no request fails, each is of one version, and its prompt was made for that', async (t) => {
  const lengths = new Map([[versions.tiny, await promptTokens()]]);
  const files = [other, second];
  let [sent, reloads, loading] = [0, 0, true];
  const answers: { status: number; body: Answer }[] = [];
  const caller = async (): Promise<void> => {
    while (loading || sent < REQUESTS) {
      sent += 1;
      const response = await sidecar.chat({ ...ENDLESS, max_tokens: 3 });
      answers.push({ status: response.status, body: (await response.json()) as Answer });
      await wait(PAUSE_MS);
    }
  };
  const callers = Array.from({ length: CALLERS }, caller);
  while (reloads % 2 === 1 || reloads === 0 || sent < REQUESTS) {
    t.match(await reload({ file: files[reloads % 2]! }), { status: 200, body: { replicas: REPLICAS } });
    if (reloads === 0) lengths.set(versions.other, await promptTokens());
    reloads += 1;
  }
  loading = false;
  await Promise.all(callers);
  t.comment(`${answers.length} requests, ${reloads} reloads`);
  t.ok(answers.length >= REQUESTS);
  t.same(
    answers.filter(({ status }) => status !== 200).map(({ status, body }) => [status, body]),
    [],
  );
  t.not(lengths.get(versions.tiny), lengths.get(versions.other));
  const wrong = answers.filter(({ body }) => {
    const { weight_version: version, weight_versions: all } = body.metadata;
    const [range] = all;
    return !(
      all.length === 1 &&
      range?.version === version &&
      range.start === 0 &&
      range.end === body.usage.completion_tokens &&
      body.usage.prompt_tokens === lengths.get(version) &&
      body.system_fingerprint === `fp_${version.slice(0, 12)}`
    );
  });
  t.same(wrong, []);
  const made = new Set(answers.map(({ body }) => body.metadata.weight_version));
  t.strictSame([...made].sort(), [versions.tiny, versions.other].sort(), 'both versions replied');
});

t.test('a decision model that is loaded when it is wanted', async (t) => {
  const question = { id: 'q', type: 'yes_no', question: 'Is it warm?' };
  const decide = (): Promise<Response> =>
    sidecar.post('/decisions', { model: DECIDE, input: 'It is warm.', questions: [question] });
  const answers = async (): Promise<unknown> => {
    const response = await decide();
    t.equal(response.status, 200);
    return ((await response.json()) as { readonly answers: unknown }).answers;
  };
  t.throws(() => sidecar.enginePid(DECIDE), 'it has no process');
  t.match(await reload({ model: DECIDE, file: await testModel() }), {
    status: 200,
    body: { model: DECIDE, replicas: 1, weight_version: versions.tiny },
  });
  const tiny = await answers();
  let loading = true;
  const asked: Promise<number>[] = Array.from({ length: 2 }, async () => {
    let refused = 0;
    while (loading) {
      if ((await decide()).status !== 200) refused += 1;
      await wait(PAUSE_MS);
    }
    return refused;
  });
  t.match(await reload({ model: DECIDE, file }), { status: 200, body: { weight_version: versions.embedded } });
  loading = false;
  t.same(await Promise.all(asked), [0, 0], 'none is refused meanwhile');
  t.notSame(await answers(), tiny, 'other weights answer otherwise');
});

t.test('a file that was written to in place is refused, and one that was renamed to its path is not', async (t) => {
  await copyFile(await embeddedTestModel(), second);
  t.match(await reload(), { status: 422, body: { error: { message: /written to in place/ } } });
  const lost = sidecar.enginePid(CHAT);
  process.kill(lost, 'SIGKILL');
  await sidecar.until(
    () => sidecar.lines.some(({ reason }) => /not the one that was loaded/.test(String(reason))),
    'refused',
  );
  const next = join(folder, 'next.gguf');
  await copyFile(await testModel(), next);
  await rename(next, second);
  t.match(await reload(), { status: 200, body: { replicas: REPLICAS, weight_version: versions.tiny } });
  t.equal((await ask()).metadata.weight_version, versions.tiny);
});
