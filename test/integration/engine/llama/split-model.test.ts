/** A model in two files, of which the first has no tensors. */
import { open, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { fileKey, type HashedFile } from '../../../../engine/protocol/file-key.js';
import { readModelHead } from '../../../../engine/llama/inspect/head.js';
import { inspectModel } from '../../../../engine/llama/inspect/model.js';
import { writeVocabulary } from '../../../../engine/llama/inspect/vocabulary-file.js';
import { checkModelFile } from '../../../../engine/llama/model-file.js';
import { loadVocabulary } from '../../../../engine/llama/vocabulary.js';
import { LoadedWeights } from '../../../../engine/llama/runtime.js';
import type { SizingSetup } from '../../../../engine/protocol/inspect-messages.js';
import { testModel } from '../../../support/models.js';
import { job } from '../../../support/step-bench.js';
import { RealLoop } from '../../../support/real-loop.js';
import { splitModel } from '../../../support/split-model.js';

const whole = await testModel();
const dir = t.testdir();
const [first, second] = await splitModel(whole, dir);
const PROMPT = Uint32Array.from({ length: 40 }, (_, i) => 60 + i);

t.test('it computes the same as in one file', async (t) => {
  const results = [];
  for (const file of [whole, first]) {
    const loop = await RealLoop.load(file);
    results.push((await loop.run(job(PROMPT, { maxTokens: 16 }))).tokens);
    await loop.dispose();
  }
  t.same(results[1], results[0]);
});

t.test('an inspection finds all of its tensors and bytes', async (t) => {
  const one = await readModelHead(whole);
  const two = await readModelHead(first);
  if (one.kind === 'bad' || two.kind === 'bad') throw new Error('bad');
  t.equal(two.tensors, one.tensors);
  t.equal(two.head.bytes, (await stat(first)).size + (await stat(second)).size);
  const setup: SizingSetup = {
    file: first,
    kind: 'chat',
    seats: 1,
    contextPerSeat: 256,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 64,
  };
  const report = await inspectModel({ setup, load: true, taken: { memory: 0, gpuMemory: 0 } }, () => undefined);
  t.match(
    report.findings.filter(({ what }) => what === 'tensors' || what === 'memory'),
    [{ ok: true }, { ok: true }],
  );
});

t.test('its vocabulary is one file, which can be loaded', async (t) => {
  const out = join(dir, 'vocabulary.gguf');
  t.match(await writeVocabulary(first, out), { kind: 'written' });
  const [made, original] = [await loadVocabulary(out), await loadVocabulary(whole)];
  t.equal(made.hash, original.hash);
  await made.dispose();
  await original.dispose();
});

t.test('its version is of all parts, and a part that changed is another model', async (t) => {
  const versionOf = (hashed?: HashedFile): Promise<string> =>
    new LoadedWeights(first, Promise.resolve(hashed)).version();
  const version = await versionOf();
  const key = fileKey(first) ?? '';
  t.equal(await versionOf({ key, version: 'as the sidecar hashed it' }), 'as the sidecar hashed it');
  const loads = new LoadedWeights(first, Promise.resolve({ key, version }));
  const file = await open(second, 'r+');
  await file.write(Buffer.from([1]), 0, 1, (await file.stat()).size - 1);
  await file.close();
  await t.rejects(loads.version(), {
    message: /^the file was replaced or written to while it was loaded/,
    mayMend: true,
  });
  t.not(await versionOf(), version);
  await t.rejects(versionOf({ key, version }), { message: /^the file is not the one that was loaded before/ });
});

t.test('a load ends as soon as its weights are known to be others', async (t) => {
  let hashed: (weights: HashedFile) => void = () => undefined;
  const weights = new LoadedWeights(first, new Promise((resolve) => (hashed = resolve)));
  const load = weights.beside(new Promise(() => undefined));
  hashed({ key: 'another', version: 'v' });
  await t.rejects(load, { message: /^the file is not the one that was loaded before/, mayMend: true });
  const own = new LoadedWeights(first, Promise.resolve({ key: fileKey(first) ?? '', version: 'v' }));
  t.equal(await own.beside(Promise.resolve('loaded')), 'loaded');
  await t.rejects(own.beside(Promise.reject(new Error('no memory'))), { message: 'no memory' });
});

t.test('a part that is cut off or not there is named', async (t) => {
  const { size } = await stat(second);
  await truncate(second, size - 250_000);
  t.match(checkModelFile(first), { kind: 'bad', problem: /^part 2 of 2 is cut off/ });
  const other = join(dir, 'lonely-00001-of-00003.gguf');
  await (await open(other, 'w')).close();
  t.match(checkModelFile(other), { kind: 'bad', problem: /^the file is no model/ });
  const [alone] = await splitModel(whole, t.testdir());
  await rm(alone.replace('00001-of', '00002-of'));
  t.match(checkModelFile(alone), { kind: 'bad', problem: 'part 2 of 2 does not exist' });
});
