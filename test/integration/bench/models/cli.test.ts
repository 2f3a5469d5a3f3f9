import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { bundleCheckout } from '../../../support/models.js';
import { readGgufFileInfo } from '../../../../engine/llama/package.js';

const CLI = fileURLToPath(new URL('../../../../bench/models/cli.js', import.meta.url));

async function cli(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit') as Promise<[number]>,
  ]);
  return { code, out, err };
}

t.test('makes a model and prints its path and size', async (t) => {
  const out = join(t.testdir(), 'tiny.gguf');
  const done = await cli('--recipe', 'tiny', '--out', out, '--seed', '4294967295');
  t.equal(done.code, 0);
  t.match(done.out, new RegExp(`^${out}  ${(await stat(out)).size} bytes \\([\\d.]+ MB\\)\\n$`));
  t.equal(done.err, '');
});

t.test('uses the vocabulary of another file', async (t) => {
  const out = join(t.testdir(), '13m.gguf');
  const vocab = join(await bundleCheckout(), 'models', 'ggml-vocab-gpt-2.gguf');
  t.equal((await cli('--recipe', '13m', '--out', out, '--vocab', vocab)).code, 0);
  const { metadata } = await readGgufFileInfo(out, { logWarnings: false });
  t.match(metadata, {
    general: { name: 'ra-random-13m' },
    llama: { vocab_size: 50_257 },
    tokenizer: { ggml: { pre: 'gpt-2' } },
  });
});

t.test('--help goes to standard output', async (t) => {
  const { code, out, err } = await cli('--help');
  t.equal(code, 0);
  t.match(out, /--recipe NAME +embedded, tiny, 13m, 150m/);
  t.equal(err, '');
});

t.test('wrong arguments: the problem, the help, exit code 2, no file', async (t) => {
  const dir = t.testdir();
  const out = ['--out', join(dir, 'x')];
  const wrong: [string[], RegExp][] = [
    [[], /^--recipe must be one of embedded, tiny, 13m, 150m/],
    [['--recipe', 'huge', ...out], /^--recipe must be/],
    [['--recipe', 'tiny'], /^--out is missing/],
    [['--recipe', '150m', ...out], /^--recipe 150m needs --vocab/],
    [['--recipe', 'tiny', ...out, '--seed', '-1'], /seed/],
    [['--recipe', 'tiny', ...out, '--seed', '4294967296'], /^--seed must be/],
    [['--recipe', 'tiny', ...out, '--what'], /--what/],
    [['--recipe', 'tiny', ...out, 'more'], /more/],
  ];
  const runs = await Promise.all(wrong.map(([args]) => cli(...args)));
  runs.forEach(({ code, err }, i) => {
    t.equal(code, 2);
    t.match(err, wrong[i]?.[1] ?? /$^/);
    t.match(err, 'Makes a GGUF model');
  });
  t.same(await readdir(dir), []);
});

t.test('a failure: one line, exit code 1', async (t) => {
  const dir = t.testdir({ file: '' });
  const runs = await Promise.all([
    cli('--recipe', 'tiny', '--out', join(dir, 'file', 'x.gguf')),
    cli('--recipe', 'tiny', '--out', join(dir, 'x.gguf'), '--vocab', join(dir, 'missing.gguf')),
  ]);
  for (const { code, err } of runs) {
    t.equal(code, 1);
    t.match(err, /^cannot make .*x\.gguf: .+\n$/);
  }
});
