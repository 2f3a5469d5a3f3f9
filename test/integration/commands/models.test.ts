/** `ra-sidecar models` as an operator runs it, with real files. Most commands, and what they ask inspectors, run in this process. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { checkModelFile } from '../../../engine/llama/model-file.js';
import { RESERVE, type Need } from '../../../engine/llama/memory/verdict.js';
import { digestOf } from '../../../engine/native/build.js';
import { MOST_SEATS } from '../../../engine/protocol/setup.js';
import { CHAT_TEMPLATE } from '../../../bench/models/chat-template.js';
import { ensureModel } from '../../../bench/models/embedded.js';
import { writeRandomModel } from '../../../bench/models/random-model.js';
import { planFor } from '../../../bench/models/recipes.js';
import { brokenModel } from '../../support/broken-models.js';
import { runCli, type CommandResult } from '../../support/cli.js';
import { runHere } from '../../support/command-here.js';
import { FileServer } from '../../support/file-server.js';
import { freePort } from '../../support/free-port.js';
import { cases } from '../../support/long-form.js';
import { bundleVocabulary } from '../../support/prompt-models.js';
import { embeddedTestModel, testModel, testVocabulary } from '../../support/models.js';
import { childrenOf, eventually, isRunning } from '../../support/processes.js';
import { sourceRoot } from '../../support/source-root.js';
import { sparseModel } from '../../support/sparse-model.js';

const CLI = fileURLToPath(new URL('../../../sidecar/cli.js', import.meta.url));

const file = await testModel();

/** A configuration of these models, in `dir`. */
function configured(dir: string, ...models: readonly object[]): Record<string, string> {
  return { RA_DATA_DIR: join(dir, 'data'), RA_MODELS: JSON.stringify(models) };
}

function json(ran: CommandResult): unknown {
  return JSON.parse(ran.stdout);
}

t.test('list: the configured models, and their files’ metadata', async (t) => {
  const dir = t.testdir();
  const models = [
    { id: 'one', kind: 'chat', file, seats: 2, contextPerSeat: 512, load: 'lazy', idleUnloadMs: 60_000 },
    { id: 'two', kind: 'decision', file: 'embedded' },
  ];
  const environment = configured(dir, ...models);
  const ran = await runCli(['models', 'list'], environment);
  t.equal(ran.code, 0);
  t.match(ran.stdout, /^ID +KIND +SIZE +ARCHITECTURE +QUANTISATION +SEATS +LOADED +FILE\n/);
  t.match(ran.stdout, /^one +chat +[\d.]+ [KM]iB +llama +F16 +2 x 512 +lazy, unloaded after 60 s +\/.*\.gguf$/m);
  t.match(ran.stdout, /^two +decision +[\d.]+ [KM]iB +llama +Q8_0 +8 x 8192 +eager +\/.*seedling\.gguf$/m);
  t.equal(ran.stderr, '');
  t.strictSame(await readdir(dir), [], 'looking makes nothing');

  const missing = configured(
    dir,
    { id: 'one', kind: 'chat', file },
    { id: 'gone', kind: 'chat', file: join(dir, 'x') },
  );
  const listed = await runHere(['models', 'list', '--json'], missing);
  t.match(listed, { code: 1, stderr: 'ra-sidecar: model gone: the file does not exist\n' });
  const { size } = await stat(file);
  t.match(json(listed), [
    { id: 'one', file, bytes: size, name: 'ra-tiny', architecture: 'llama', quantisation: 'F16', trainedContext: 8192 },
    { id: 'gone', problem: 'the file does not exist' },
  ]);
});

t.test('verify: a model’s memory, and the seats that fit at which context', async (t) => {
  const environment = configured(t.testdir(), { id: 'one', kind: 'decision', file, seats: 2, contextPerSeat: 1024 });
  const ran = await runHere(['models', 'verify', '--json'], environment);
  t.match(ran, { code: 0, stderr: '' });
  const [found] = json(ran) as [Found];
  t.match(found, {
    id: 'one',
    serves: true,
    head: { architecture: 'llama', quantisation: 'F16' },
    load: { gpu: false, gpuLayers: 0, flashAttention: false },
    findings: [
      { what: 'file', ok: true },
      { what: 'architecture', ok: true },
      { what: 'tensors', ok: true },
      { what: 'tokenizer', ok: true },
      { what: 'chat', ok: true, needed: false },
      { what: 'tool calls', ok: true, needed: false, says: /^its own format: calls after / },
      { what: 'decisions', ok: true, needed: true },
      { what: 'memory', ok: true },
    ],
  });
  const { weights, perSeat, compute, prefixCache = 0, total, usable } = found.memory;
  t.equal(total, weights + 2 * perSeat + compute + prefixCache);
  t.ok(weights > 0 && weights <= (await stat(file)).size);
  // Two layers, one KV head of 32 numbers, keys and values, two bytes each.
  t.equal(perSeat, 1024 * 2 * 32 * 2 * 2, 'KV as computed by hand');
  t.strictSame(
    found.sizes.map((row) => row.contextPerSeat),
    [1024, 2048, 4096, 8192],
    'up to the training context',
  );
  for (const row of found.sizes) {
    t.equal(row.perSeat, row.contextPerSeat * 2 * 32 * 2 * 2);
    t.ok(row.seats > 0 && weights + row.seats * row.perSeat <= usable);
  }

  const text = await runHere(['models', 'verify', 'one'], environment);
  t.equal(text.code, 0);
  t.match(text.stdout, /memory: weights [\d.]+ \w+, KV 256 KiB per seat \(2: 512 KiB\), compute/);
  const digest = digestOf(sourceRoot, 'ra-engine').replace('sources:', '').slice(0, 12);
  t.match(
    text.stdout,
    `computed by the package’s own binaries with ra-engine ${digest} (to compile it: make native)\n`,
  );
  t.match(text.stdout, /CONTEXT PER SEAT +KV PER SEAT +SEATS THAT FIT\n/);
  t.match(text.stdout, /it can be served as a decision model\n$/);
});

t.test('verify: another chat template, one for tools, a configured format, and a missing template', async (t) => {
  const plainTemplate = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}';
  const dir = t.testdir({ 'plain.jinja': plainTemplate });
  const own = testVocabulary();
  const metadata = new Map(own.metadata)
    .set('tokenizer.chat_template', { type: 'string', value: plainTemplate })
    .set('tokenizer.chat_template.tool_use', { type: 'string', value: CHAT_TEMPLATE });
  const two = await ensureModel(dir, { ...planFor('tiny', { vocabulary: { ...own, metadata } }), name: 'two' });
  const model = { kind: 'chat', file, seats: 2, contextPerSeat: 1024 };
  const chatTemplate = join(dir, 'plain.jinja');
  const environment = configured(
    dir,
    { id: 'plain', ...model, chatTemplate },
    { id: 'chosen', ...model, chatTemplate, toolFormat: 'hermes' },
    { id: 'gone', ...model, chatTemplate: join(dir, 'gone.jinja') },
    { id: 'two', ...model, file: two, contextPerSeat: 32_768 },
  );
  const ran = await runHere(['models', 'verify', '--json'], environment);
  t.equal(ran.code, 1);
  const [plain, chosen, gone, both] = json(ran) as {
    serves: boolean;
    findings: { what: string }[];
    problem?: string;
  }[];
  const calls = (found: typeof plain) => found?.findings.find(({ what }) => what === 'tool calls');
  t.match(calls(plain), { ok: false, says: /^calls by a JSON instruction.*lists no tools.*as plain text$/ });
  t.equal(plain?.serves, true, 'it is served all the same');
  t.match(calls(chosen), { ok: true, says: /^the format that toolFormat names: calls after <tool_call>/ });
  const beyond = both?.findings.find(({ what }) => what === 'context');
  t.match(beyond, { ok: false, needed: false, says: /^contextPerSeat is 32,768 .* trained for 8,192: / });
  t.equal(both?.serves, true, 'with a warning');
  t.match(calls(both), { ok: true, says: /^its own format: calls after <tool_call>/ });
  t.match(gone, { serves: false, problem: /^model gone: chatTemplate cannot be read from .*gone\.jinja: ENOENT$/ });
  t.notMatch(ran.stdout, /m\.role/, 'the template itself is not printed');
  const served = await runCli(['serve'], environment);
  t.match(served, { code: 1, stderr: /model gone: chatTemplate cannot be read/ });
});

t.test('verify: flash attention on a CPU with wide heads or short seats', async (t) => {
  const tiny = planFor('tiny');
  const all = [
    [2, 1024, 'auto'],
    [4, 1024, false],
    [4, 512, 'auto'],
  ] as const;
  for (const [heads, contextPerSeat, flashAttention] of cases<(typeof all)[number]>(all, (_, index) => index > 0)) {
    const dir = t.testdir();
    const wide = join(dir, 'wide.gguf');
    await writeRandomModel(wide, { ...tiny, shape: { ...tiny.shape, width: 128, heads, kvHeads: 1 } });
    const ran = await runHere(
      ['models', 'verify', '--json'],
      configured(dir, { id: 'one', kind: 'chat', file: wide, seats: 2, contextPerSeat }),
    );
    t.match(
      json(ran),
      [{ load: { gpu: false, flashAttention } }],
      `heads ${128 / heads} wide, ${contextPerSeat} a seat`,
    );
  }
});

interface Found {
  readonly memory: {
    weights: number;
    perSeat: number;
    compute: number;
    prefixCache?: number;
    total: number;
    usable: number;
  };
  readonly sizes: readonly { contextPerSeat: number; perSeat: number; seats: number }[];
  readonly serves: boolean;
}

t.test(
  'verify: a model that does not fit is refused with the numbers, alone and together, and so is a start',
  async (t) => {
    const big = { kind: 'chat', file, seats: 256, contextPerSeat: 8192 };
    const environment = configured(t.testdir(), { id: 'one', ...big }, { id: 'two', ...big });
    const numbers =
      /it needs 1\.\d GiB of memory \(weights 0, KV 0\.5 for 256 seats of 8,192 tokens, compute 0\.\d+, grammars 1\.\d, drafts 0\.\d+\) and [\d.]+ GiB are free\. Fewer seats or a smaller context fit: at most \d+ seats?$/m;
    const small = await runHere(['models', 'verify', 'one', '--memory', '512MiB'], environment);
    t.match(small, { code: 1, stdout: numbers });
    t.match(small.stdout, /it cannot be served: it needs/);
    const less = ['models', 'verify', 'one', '--memory', '512MiB', '--seats', '8'];
    t.match(await runHere(less, environment), { code: 0, stdout: /8 seats of 8,192 tokens fit/ });

    // With half of the past state all seats fit.
    const [fits] = json(await runHere(['models', 'verify', 'one', '--memory', '8GiB', '--json'], environment)) as [
      Found,
    ];
    const { total: all, prefixCache = 0 } = fits.memory;
    const lacking = [
      'models',
      'verify',
      'one',
      '--memory',
      `${((all - prefixCache + RESERVE) / 2 ** 20 - 128).toFixed(0)}MiB`,
    ];
    const halved = /Fewer seats .* fit: .*; or set kv\.keys and kv\.values to q8_0: then it fits$/m;
    t.match(await runHere(lacking, environment), { code: 1, stdout: halved });

    const together = await runHere(['models', 'verify', '--memory', '2.5GiB', '--json'], environment);
    t.equal(together.code, 1);
    t.match(json(together), [{ serves: true }, { serves: false }], 'each would fit alone, both do not');

    const huge = { id: 'one', kind: 'chat', file, seats: 256, contextPerSeat: 1_048_576 };
    const ports = { RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' };
    const served = await runCli(['serve'], { ...configured(t.testdir(), huge), ...ports });
    t.match(served, {
      code: 1,
      stderr: /model one cannot be served from .*: it needs [\d.,]+ GiB of memory \(weights/,
    });
  },
);

t.test('verify: cores that do not exist, unless the memory of another machine was named', async (t) => {
  const environment = configured(t.testdir(), { id: 'one', kind: 'chat', file, contextPerSeat: 512, cores: '4095' });
  const here = await runHere(['models', 'verify', '--json'], environment);
  const says = /^cores 4095 cannot be used here, [-,\d]+ can$/;
  t.match(json(here), [{ serves: false, findings: [{}, {}, { what: 'cores', ok: false, needed: true, says }] }]);
  t.equal(here.code, 1);
  const there = await runHere(['models', 'verify', '--memory', '9999TiB', '--json'], environment);
  t.match(json(there), [{ serves: true, findings: [{}, {}, { what: 'cores', ok: false, needed: false, says }] }]);
  t.equal(there.code, 0);
});

t.test('verify: with the memory of a larger machine the weights are not loaded on this one', async (t) => {
  const dir = t.testdir();
  const path = await sparseModel(dir, 1.5 * totalmem());
  const ran = await runHere(
    ['models', 'verify', path, '--memory', '9999TiB', '--json'],
    configured(dir, { id: 'one', kind: 'chat', file }),
  );
  t.match(json(ran), [
    {
      serves: true,
      findings: [
        { what: 'file', ok: true },
        { what: 'architecture', ok: true },
        {
          what: 'tensors',
          ok: false,
          needed: false,
          says: /^they were not loaded here: its weights alone need [\d.,]+ GiB/,
        },
        { what: 'memory', ok: true },
      ],
    },
  ]);
  t.equal(ran.code, 0);
});

t.test('verify: a GPU that this machine lacks takes all but the embeddings', async (t) => {
  const environment = configured(t.testdir(), { id: 'one', kind: 'chat', file, gpu: 'cuda', seats: 4 });
  const ran = await runHere(['models', 'verify', 'one', '--gpu-memory', '80GiB', '--json'], environment);
  const [found] = json(ran) as [{ gpuMemory: Need; memory: Need; sizes: { seats: number }[] }];
  t.match(found, { serves: true, load: { gpu: 'assumed' }, gpuMemory: { usable: 80 * 2 ** 30 - RESERVE } });
  const cpu = await runHere(['models', 'verify', file, '--seats', '4', '--json'], environment);
  const [here] = json(cpu) as [{ memory: Need }];
  t.equal(found.gpuMemory.perSeat, here.memory.perSeat);
  t.ok(Math.abs(found.gpuMemory.weights + found.memory.weights - here.memory.weights) < 0.02 * here.memory.weights);
  t.ok(found.memory.weights > 0 && found.memory.perSeat === 0);
  t.strictSame([...new Set(found.sizes.map(({ seats }) => seats))], [MOST_SEATS]);

  const text = await runHere(['models', 'verify', 'one', '--gpu-memory', '80GiB'], environment);
  t.match(text.stdout, /layers on the GPU \(assumed\)[^]* 256, the most that an engine can have\n/);
  const small = await runHere(['models', 'verify', 'one', '--gpu-memory', '256MiB'], environment);
  t.match(small, {
    code: 1,
    stdout: /of GPU memory and 0 GiB may be used: 0\.25 GiB are free, of which 0\.25 GiB are kept/,
  });
});

t.test('verify: a file that cannot be served is reported, whatever its damage', async (t) => {
  const dir = t.testdir();
  const all = [
    [join(dir, 'none.gguf'), /the file does not exist/],
    [await brokenModel(dir, 'garbage'), /the file is no GGUF model/],
    [await brokenModel(dir, 'cut in the last tensor'), /tensor 'output.weight' data is not within the file bounds/],
    [await brokenModel(dir, 'of an unknown architecture'), /does not know the architecture zzzzz/],
    [await brokenModel(dir, 'with no heads'), /the inspector aborted \(assertion\)/],
    [await bundleVocabulary('gpt-2'), /the file holds a vocabulary and no weights/],
  ] as const;
  // One that the check of the head refuses, one that llama.cpp refuses, one that ends the inspector.
  for (const [path, reason] of cases<readonly [string, RegExp]>(all, (_, index) => [1, 2, 4].includes(index))) {
    const configuration = configured(dir, { id: 'one', kind: 'chat', file });
    const ran = await runHere(['models', 'verify', path], configuration, { inspectors: 'processes' });
    t.match(ran, { code: 1, stdout: reason }, basename(path));
    t.match(ran.stdout, /it cannot be served: /);
  }
  const mistyped = await runHere(['models', 'verify', 'on'], configured(dir, { id: 'one', kind: 'chat', file }));
  t.match(mistyped, { code: 1, stdout: /the file does not exist/, stderr: 'no model has this id; there are one\n' });
  const path = join(dir, 'mistyped.gguf');
  t.match(await runHere(['models', 'add', path], configured(dir, { id: 'one', kind: 'chat', file })), {
    code: 1,
    stderr: `ra-sidecar: ${path} does not exist\n`,
  });
});

t.test('wrong command lines', async (t) => {
  for (const args of [[], ['verify', '--memory', '5'], ['fetch'], ['verify', '--seats', '0'], ['add'], ['list', 'x']]) {
    const ran = await runHere(['models', ...args], configured(t.testdir(), { id: 'one', kind: 'chat', file }));
    t.match(ran, { code: 2, stdout: '', stderr: /^ra-sidecar: .*\n\nusage: ra-sidecar models / }, args.join(' '));
  }
});

t.test('add: downloaded, verified, renamed; never twice and never over another file', async (t) => {
  const dir = t.testdir({ models: {} });
  const environment = { RA_DATA_DIR: dir };
  const host = await FileServer.open(t, [file]);
  const uri = `${host.base}/${basename(file)}`;
  const path = join(dir, 'models', basename(file));

  const added = await runHere(['models', 'add', uri], environment);
  t.match(added, { code: 0, stdout: `${path}\n`, stderr: /^fetched [\d.]+ KiB\n/ });
  t.match(
    added.stderr,
    /it can be served as a chat model\nin models of the configuration: \{"id":"ra-tiny-[0-9a-f]{16}"/,
  );
  t.notMatch(added.stderr, /\u001b/, 'no progress bar without a terminal');
  t.ok((await readFile(path)).equals(await readFile(file)));
  t.strictSame(await readdir(join(dir, 'models')), [basename(file)], 'no other file is left');

  const again = await runHere(['models', 'add', uri, '--json'], environment);
  t.match(again, { code: 0, stderr: /^the file already exists\n/ });
  t.match(json(again), { file: path, serves: true });

  await writeFile(path, 'mine');
  const other = await runHere(['models', 'add', uri], environment);
  t.match(other, {
    code: 1,
    stdout: '',
    stderr: /it was not added: a file .*\.gguf is there already and is another one/,
  });
  t.equal(await readFile(path, 'utf8'), 'mine');

  const elsewhere = join(dir, 'else', 'where');
  t.match(await runHere(['models', 'add', uri, '--dir', elsewhere], environment), {
    code: 0,
    stdout: `${join(elsewhere, basename(file))}\n`,
  });
  t.match(
    await runHere(['models', 'add', file], environment),
    { code: 0, stdout: `${file}\n` },
    'a file of this machine',
  );
});

// Ten commands, each with an inspector.
t.test('add: an address that cannot be downloaded, or is no model, leaves no file', { timeout: 120_000 }, async (t) => {
  const dir = t.testdir();
  const host = await FileServer.open(t, [await brokenModel(dir, 'garbage')]);
  const models = join(dir, 'models');
  const all = [
    [`${host.base}/404.gguf`, /its host has no such file \(404\)/],
    [`${host.base}/401.gguf`, /its host asks who you are \(401\)/],
    [`${host.base}/garbage.gguf`, /what came is no model that can be served: the file is no GGUF model/],
    [`http://127.0.0.1:${await freePort()}/m.gguf`, /its host refuses the connection/],
    ['http://a.host.invalid/m.gguf', /its host(’s name cannot be looked up: is there a network\?| is not known)/],
    ['http://user:secret@127.0.0.1:1/m.gguf', /it was not added/],
    ['hf:user/private-401:Q4_K_M', /its host asks who you are \(401\): for Hugging Face, set HF_TOKEN/],
    ['hf:user/gated-403:Q4_K_M', /its host does not give it to you \(403\)/],
    ['hf:user/none-404:Q4_K_M', /its host has no such model, or not in that quantisation/],
    ['nothing-here.gguf', /nothing-here\.gguf does not exist/],
  ] as const;
  // One of each kind: an HTTP answer, a file that is no model, an address with a password, Hugging Face.
  for (const [uri, why] of cases<readonly [string, RegExp]>(all, (_, index) => [0, 2, 5, 8].includes(index))) {
    const ran = await runHere(['models', 'add', uri, '--dir', models], { RA_DATA_DIR: dir, MODEL_ENDPOINT: host.base });
    t.match(ran, { code: 1, stdout: '', stderr: why }, uri);
    t.notMatch(ran.stderr, /secret/);
    t.strictSame(await readdir(models), [], uri);
  }
});

t.test('add: a split model, and again', async (t) => {
  const dir = t.testdir({ from: {}, models: {} });
  const names = ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf'];
  const parts = names.map((name) => join(dir, 'from', name));
  for (const part of parts) await copyFile(file, part);
  const host = await FileServer.open(t, parts);
  // Of two parts that are alike llama.cpp ends the inspector.
  const add = (): Promise<CommandResult> =>
    runHere(['models', 'add', `${host.base}/m-00001-of-00002.gguf`], { RA_DATA_DIR: dir }, { inspectors: 'processes' });
  t.match(await add(), { stderr: /^fetched / });
  t.strictSame(await readdir(join(dir, 'models')), names);
  t.match(await add(), { stderr: /^the file already exists\n/ });
  await writeFile(join(dir, 'models', 'm-00002-of-00002.gguf'), 'mine');
  t.match(await add(), { code: 1, stderr: /m-00002-of-00002\.gguf is there already and is another one/ });
});

t.test('add: files of killed commands are removed when they are a day old', async (t) => {
  const dir = t.testdir({
    models: { '.adding-old': {}, '.adding-new': {}, '.adding-busy': { 'm.gguf.ipull': '' } },
  });
  const old = new Date(Date.now() - 25 * 60 * 60 * 1000);
  for (const name of ['models/.adding-old', 'models/.adding-busy']) {
    await utimes(join(dir, name), old, old);
  }
  const host = await FileServer.open(t, []);
  const environment = { RA_DATA_DIR: dir };
  t.match(await runHere(['models', 'add', `${host.base}/404.gguf`], environment), { code: 1 });
  t.strictSame((await readdir(join(dir, 'models'))).sort(), ['.adding-busy', '.adding-new']);
});

t.test('add: if the command is killed half-way, nothing of the download is left', async (t) => {
  const dir = t.testdir({ models: {} });
  const source = join(dir, 'large.gguf');
  await copyFile(await embeddedTestModel(), source);
  const host = await FileServer.open(t, [source]);
  host.half = true;
  const child = spawn(process.execPath, [CLI, 'models', 'add', `${host.base}/large.gguf`], {
    stdio: 'ignore',
    env: { ...process.env, RA_DATA_DIR: dir },
  });
  await host.halfway;
  t.equal((await readdir(join(dir, 'models'))).length, 1, 'the folder of the download');
  const [inspector] = childrenOf(Number(child.pid));
  t.match(inspector?.command, /inspect\.js/);
  child.kill('SIGKILL');
  await once(child, 'exit');
  await eventually('the inspector ends by itself', () => !isRunning(Number(inspector?.pid)));
  t.strictSame(await readdir(join(dir, 'models')), []);
});

t.test('vocabulary: a file without weights, which does not overwrite another', async (t) => {
  const dir = t.testdir();
  const out = join(dir, 'vocabulary.gguf');
  const ran = await runHere(['models', 'vocabulary', file, out], {}, { inspectors: 'processes' });
  t.match(ran, { code: 0, stdout: `${out}\n` });
  const head = checkModelFile(out);
  t.match(head, { kind: 'head', tensors: 0 });
  const [whole, alone] = [await readFile(file), await readFile(out)];
  t.ok(alone.length < whole.length);
  t.ok(alone.subarray(16).equals(whole.subarray(16, alone.length)), 'the metadata unchanged');
  t.match(await runHere(['models', 'vocabulary', file, out]), { code: 1, stderr: /vocabulary\.gguf exists/ });
  t.match(await runHere(['models', 'vocabulary', join(dir, 'none'), out]), { code: 1, stderr: /does not exist/ });
  t.equal((await runHere(['models', 'vocabulary', file])).code, 2);
  t.strictSame(await readdir(dir), ['vocabulary.gguf']);
});
