#!/usr/bin/env node
/**
 * Makes the training data: the vocabulary (learnt once, kept beside), rows for training and for looking at the loss. Seeds are
 * fixed, so the same sources give the same bytes.
 *
 *   node dist/bench/seedling/build.js FOLDER EXAMPLES LONG EARLY FOCUS
 */
import { createWriteStream, type WriteStream } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { join } from 'node:path';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { makeTemplate } from '../../engine/prompt/template.js';
import { PREFACE, GAP, questionText } from '../../engine/prompt/decision-prompt.js';
import { writeRandomModel } from '../models/random-model.js';
import { END_OF_TEXT, END_OF_TURN } from '../models/vocabulary-own.js';
import type { Example } from './corpus/example.js';
import { earlyAt, exampleAt, focusAt, longDecisionAt } from './mix.js';
import { ROW, RowMaker } from './rows.js';
import { SEEDLING_TEMPLATE } from './template.js';
import { learnFrom, vocabularyOf, type Merged } from './vocabulary.js';

const SEED = { vocabulary: 11, train: 1, validation: 2, long: 3, early: 4, focus: 5 } as const;
const VOCABULARY_EXAMPLES = 30_000;
const VALIDATION_EXAMPLES = 1000;
const LONG_TOKENS = [500, 900, 1500] as const;

function* rendered(): Generator<string> {
  const made = makeTemplate(SEEDLING_TEMPLATE, { bos: END_OF_TEXT, eos: END_OF_TURN });
  if (made.kind === 'bad') throw new Error(made.problem);
  for (let at = 0; at < VOCABULARY_EXAMPLES; at++) {
    const example = exampleAt(SEED.vocabulary, at, 'train');
    if (example.kind === 'decision') {
      yield PREFACE + example.input + GAP;
      for (const question of example.questions) yield questionText(question);
    } else {
      const text = made.template.render(example.conversation, { addGenerationPrompt: true });
      if (text.kind === 'failed') throw new Error(`${example.topic}: not rendered`);
      yield text.text;
      yield example.reply;
    }
  }
}

async function merges(file: string): Promise<Merged> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Merged;
  } catch {
    const learnt = learnFrom(rendered());
    await writeFile(file, JSON.stringify(learnt));
    return learnt;
  }
}

/** Rows to `name.rows`, the first row of each example to `name.index`. */
async function write(folder: string, name: string, maker: RowMaker, examples: Iterable<Example>): Promise<void> {
  const rows = createWriteStream(join(folder, `${name}.rows`));
  const starts: number[] = [0];
  let total = 0;
  for (const example of examples) {
    const made = maker.rows(example);
    total += made.length / ROW;
    starts.push(total);
    if (!rows.write(Buffer.from(made.buffer, made.byteOffset, made.byteLength))) await once(rows, 'drain');
  }
  await ended(rows);
  await writeFile(join(folder, `${name}.index`), Uint32Array.from(starts));
  process.stdout.write(`${name}: ${starts.length - 1} examples, ${total} rows\n`);
}

async function ended(stream: WriteStream): Promise<void> {
  stream.end();
  await once(stream, 'finish');
}

function* counted<T>(count: number, make: (at: number) => T): Generator<T> {
  for (let at = 0; at < count; at++) yield make(at);
}

const [folder, examples, long, early, focus] = process.argv.slice(2);
if (folder === undefined || examples === undefined || long === undefined || early === undefined || focus === undefined)
  throw new Error('usage: build FOLDER EXAMPLES LONG EARLY FOCUS');
await mkdir(folder, { recursive: true });
const vocabulary = vocabularyOf(await merges(join(folder, 'merges.json')));
const file = join(folder, 'vocabulary.gguf');
// Weights so small that only the tokenizer counts.
await writeRandomModel(file, {
  name: 'seedling-vocabulary',
  shape: { width: 64, layers: 1, heads: 2, kvHeads: 1, feedForward: 64, context: 8192, weights: 'Q8_0' },
  seed: 1,
  vocabulary,
});
const loaded = await loadVocabulary(file);
const maker = new RowMaker(loaded);
process.stdout.write(`vocabulary: ${loaded.size}\n`);
await write(
  folder,
  'early',
  maker,
  counted(Number(early), (at) => earlyAt(SEED.early, at, 'train')),
);
await write(
  folder,
  'focus',
  maker,
  counted(Number(focus), (at) => focusAt(SEED.focus, at, 'train')),
);
await write(
  folder,
  'validation',
  maker,
  counted(VALIDATION_EXAMPLES, (at) => exampleAt(SEED.validation, at, 'held')),
);
await write(
  folder,
  'train',
  maker,
  counted(Number(examples), (at) => exampleAt(SEED.train, at, 'train')),
);
await write(
  folder,
  'long',
  maker,
  counted(Number(long), (at) => longDecisionAt(SEED.long, at, 'train', LONG_TOKENS[at % 3] ?? 500)),
);
await loaded.dispose();
