import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Token } from 'node-llama-cpp';
import t from 'tap';
import { ensureEmbeddedModel } from '../../../../bench/models/embedded.js';
import { embeddedTestModel } from '../../../support/models.js';
import { cpuLlama } from '../../../support/llama.js';

const run = promisify(execFile);

t.test('made at the first run with less than 20 MB, then kept', async (t) => {
  const dir = join(t.testdir(), 'not', 'there');
  const path = await ensureEmbeddedModel(dir);
  t.match(path, /ra-embedded-[0-9a-f]{16}\.gguf$/);
  t.ok((await stat(path)).size < 20e6);
  const past = new Date(1e12);
  await utimes(path, past, past);
  t.equal(await ensureEmbeddedModel(dir), path);
  t.same((await stat(path)).mtime, past, 'not written again');
  t.equal((await readdir(dir)).length, 1);
});

t.test('several processes at once: all succeed, with one complete file', async (t) => {
  const dir = t.testdir({ models: {} });
  const script = join(dir, 'make.mjs');
  const module = new URL('../../../../bench/models/embedded.js', import.meta.url);
  await writeFile(
    script,
    `import { ensureEmbeddedModel } from ${JSON.stringify(module.href)};
    process.stdout.write(await ensureEmbeddedModel(process.argv[2]));`,
  );
  const models = join(dir, 'models');
  const runs = await Promise.all([1, 2, 3].map(() => run(process.execPath, [script, models])));
  const paths = new Set(runs.map(({ stdout }) => stdout));
  t.equal(paths.size, 1);
  t.equal((await readdir(models)).length, 1);
  const sum = async (path: string): Promise<string> =>
    createHash('sha256')
      .update(await readFile(path))
      .digest('hex');
  t.equal(await sum([...paths][0] ?? ''), await sum(await embeddedTestModel()));
});

t.test(
  'its replies are text: they end by themselves, mostly soon, and have no broken or hidden characters',
  async (t) => {
    const llama = await cpuLlama(1);
    t.teardown(() => llama.dispose());
    const model = await llama.loadModel({ modelPath: await embeddedTestModel() });
    t.ok(model.trainContextSize >= 8192);
    const context = await model.createContext({ contextSize: 1024, threads: 1 });
    const sequence = context.getSequence();
    const most = 400;
    const reply = async (seed: number, temperature: number): Promise<Token[]> => {
      const prompt = `<|im_start|>user\nQuestion ${seed}<|im_end|>\n<|im_start|>assistant\n`;
      const tokens: Token[] = [];
      await sequence.clearHistory();
      for await (const token of sequence.evaluate(model.tokenize(prompt, true), { temperature, seed })) {
        if (tokens.push(token) === most) break;
      }
      return tokens;
    };
    for (const temperature of [1, 0]) {
      const lengths: number[] = [];
      for (let seed = 1; seed <= 16; seed++) {
        const tokens = await reply(seed, temperature);
        lengths.push(tokens.length);
        t.notMatch(model.detokenize(tokens, true), /\ufffd|[^\P{C}\n]|<\||<\/?think|<\/?tool/u);
      }
      const ended = lengths.filter((length) => length < most).length;
      t.ok(ended >= 12, `${ended} of ${lengths.length} ended at temperature ${temperature}`);
      const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
      t.ok(mean > 10 && mean < 150, `mean length ${mean} at temperature ${temperature}`);
      t.ok(new Set(lengths).size > 5, 'of many lengths');
    }
  },
);
