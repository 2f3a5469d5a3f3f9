#!/usr/bin/env node
/** Creates a model file from the command line, for benches and for inspection. */
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { writeRandomModel } from './random-model.js';
import { isRecipeName, needsVocabulary, planFor, RECIPE_NAMES, type RecipeName } from './recipes.js';
import type { Vocabulary } from './vocabulary.js';

const HELP = `Makes a GGUF model with random weights.

  node dist/bench/models/cli.js --recipe NAME --out FILE [--vocab FILE] [--seed N]

  --recipe NAME   ${RECIPE_NAMES.join(', ')}
  --out FILE      where to write; an existing file is replaced
  --vocab FILE    a GGUF file whose tokenizer to copy (needed for ${RECIPE_NAMES.filter(needsVocabulary).join(' and ')})
  --seed N        whole number from 0 to 4294967295, the recipe's own by default; the same seed gives
                  the same file
  --help          this text
`;

const EXIT = { ok: 0, failed: 1, usage: 2 } as const;

interface Order {
  readonly recipe: RecipeName;
  readonly out: string;
  readonly vocab: string | undefined;
  readonly seed: number | undefined;
}

/** The arguments’ order, or the problem. */
function readOrder(args: string[]): Order | 'help' | { readonly wrong: string } {
  const string = { type: 'string' } as const;
  let values;
  try {
    const options = { recipe: string, out: string, vocab: string, seed: string, help: { type: 'boolean' } } as const;
    ({ values } = parseArgs({ args, options }));
  } catch (error) {
    return { wrong: String(error instanceof Error ? error.message : error) };
  }
  if (values.help) return 'help';
  const { recipe, out, vocab, seed } = values;
  if (recipe === undefined || !isRecipeName(recipe))
    return { wrong: `--recipe must be one of ${RECIPE_NAMES.join(', ')}` };
  if (out === undefined || out === '') return { wrong: '--out is missing' };
  if (vocab === undefined && needsVocabulary(recipe)) return { wrong: `--recipe ${recipe} needs --vocab` };
  if (seed !== undefined && (!/^\d{1,10}$/.test(seed) || Number(seed) > 0xffff_ffff))
    return { wrong: '--seed must be 0 to 4294967295' };
  return { recipe, out: resolve(out), vocab, seed: seed === undefined ? undefined : Number(seed) };
}

async function make(order: Order): Promise<string> {
  const plan = planFor(order.recipe, {
    ...(order.seed !== undefined && { seed: order.seed }),
    ...(order.vocab !== undefined && { vocabulary: await vocabularyOf(order.vocab) }),
  });
  await writeRandomModel(order.out, plan);
  const { size } = await stat(order.out);
  return `${order.out}  ${size} bytes (${(size / 1e6).toFixed(1)} MB)\n`;
}

/** node-llama-cpp is loaded only if a vocabulary is read. */
async function vocabularyOf(file: string): Promise<Vocabulary> {
  const { copyVocabulary } = await import('./vocabulary-copy.js');
  return await copyVocabulary(resolve(file));
}

async function run(): Promise<number> {
  const order = readOrder(process.argv.slice(2));
  if (order === 'help') {
    process.stdout.write(HELP);
    return EXIT.ok;
  }
  if ('wrong' in order) {
    process.stderr.write(`${order.wrong}\n\n${HELP}`);
    return EXIT.usage;
  }
  try {
    process.stdout.write(await make(order));
    return EXIT.ok;
  } catch (error) {
    process.stderr.write(`cannot make ${order.out}: ${String(error instanceof Error ? error.message : error)}\n`);
    return EXIT.failed;
  }
}

process.exitCode = await run();
