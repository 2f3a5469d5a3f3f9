import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { access, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ensureEmbeddedModel, ensureModel } from '../../bench/models/embedded.js';
import { planFor } from '../../bench/models/recipes.js';
import { ownVocabulary } from '../../bench/models/vocabulary-own.js';
import type { Vocabulary } from '../../bench/models/vocabulary.js';
import { sourceRoot } from './source-root.js';

const run = promisify(execFile);

/** Kept between runs and shared by test processes: dist/.cache. Every file was put there by a rename. */
export const CACHE = fileURLToPath(new URL('../../.cache/', import.meta.url));

const BUNDLE = fileURLToPath(new URL('../llama/gitRelease.bundle', import.meta.resolve('node-llama-cpp')));

const MAKERS = join(sourceRoot, 'bench/models/');

let own: Vocabulary | undefined;

/** The tests' own vocabulary, made once a process: that takes a third of a second. Not to be changed. */
export function testVocabulary(): Vocabulary {
  return (own ??= ownVocabulary());
}

let tiny: Promise<string> | undefined;
let embedded: Promise<string> | undefined;

/**
 * Path of the `tiny` model: the tests’ own vocabulary, two layers. Created on the first call; any number of processes
 * may call at once.
 */
export function testModel(): Promise<string> {
  return (tiny ??= remembered('tiny', (folder) => ensureModel(folder, planFor('tiny'))));
}

/** Path of the embedded model, created like testModel(). */
export function embeddedTestModel(): Promise<string> {
  return (embedded ??= remembered('embedded', ensureEmbeddedModel));
}

/**
 * The path that `make` returned for the same code. A file’s name depends on its vocabulary, whose creation takes a
 * fifth of a second of processor time in each test process.
 */
async function remembered(name: string, make: (folder: string) => Promise<string>): Promise<string> {
  const code = createHash('sha256');
  for (const file of readdirSync(MAKERS).sort()) code.update(readFileSync(MAKERS + file));
  const folder = join(CACHE, 'models');
  const note = join(folder, `${name}-${code.digest('hex').slice(0, 16)}.name`);
  const known = await readFile(note, 'utf8').catch(() => undefined);
  if (known !== undefined && (await exists(join(folder, known)))) return join(folder, known);
  const made = await make(folder);
  const own = `${note}.${process.pid}`;
  await writeFile(own, basename(made));
  await rename(own, note);
  return made;
}

/**
 * Path of a folder with the `models/` folder of the llama.cpp bundled with node-llama-cpp: real vocabularies
 * (`models/ggml-vocab-*.gguf`, with `.inp` and `.out`) and chat templates (`models/templates/*.jinja`). Checked out on
 * the first call; any number of processes may call at once. Needs git.
 */
export async function bundleCheckout(): Promise<string> {
  const folder = join(CACHE, 'llama.cpp');
  if (await exists(folder)) return folder;
  await mkdir(CACHE, { recursive: true });
  const own = await mkdtemp(join(CACHE, 'llama.cpp-'));
  await run('git', ['clone', '--quiet', '--no-checkout', BUNDLE, own]);
  await run('git', ['-C', own, 'checkout', '--quiet', 'HEAD', '--', 'models']);
  await rm(join(own, '.git'), { recursive: true });
  try {
    await rename(own, folder);
  } catch (error) {
    // A folder cannot replace a full one by rename: another process was first.
    await rm(own, { recursive: true });
    if (!(await exists(folder))) throw error;
  }
  return folder;
}

/** The commit of the bundle. Needs git. */
export async function bundleCommit(): Promise<string> {
  const { stdout } = await run('git', ['bundle', 'list-heads', BUNDLE, 'HEAD']);
  return stdout.slice(0, stdout.indexOf(' '));
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
