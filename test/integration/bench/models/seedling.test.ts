/** The file that is served by default: its properties, and that llama.cpp computes what it was trained to. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { EngineDriver } from '../../../../bench/support/engine-driver.js';
import type { Asked } from '../../../../bench/seedling/corpus/example.js';
import { chatAt, decisionAt } from '../../../../bench/seedling/mix.js';
import { ROW, RowMaker } from '../../../../bench/seedling/rows.js';
import { SEEDLING_TEMPLATE, withTemplate } from '../../../../bench/seedling/template.js';
import { loadVocabulary } from '../../../../engine/llama/vocabulary.js';
import { EMBEDDED_MODEL } from '../../../../sidecar/engine-client/weight-files.js';
import { sourceRoot } from '../../../support/source-root.js';
import { ALL_ACCOUNTS } from '../../../../engine/protocol/cache-key.js';
import { readGgufFileInfo } from '../../../../engine/llama/package.js';

/** The most that Q8_0 may change a log-probability. */
const MOST_APART = 0.35;
const MEAN_APART = 0.07;

interface Reference {
  readonly tokens: readonly number[];
  readonly likeliest: readonly number[];
  /** Computed by PyTorch from float32 weights. */
  readonly logprobs: readonly number[];
}

t.test('small, a Llama, for contexts of 8,192 tokens', async (t) => {
  t.ok((await stat(EMBEDDED_MODEL)).size < 12e6);
  const { metadata } = await readGgufFileInfo(EMBEDDED_MODEL, { sourceType: 'filesystem', logWarnings: false });
  t.equal(metadata.general.architecture, 'llama');
  t.ok((metadata.llama?.context_length ?? 0) >= 8192);
});

t.test(
  'it has the template of its sources, and a template is replaced without a change of anything else',
  async (t) => {
    const read = (path: string): ReturnType<typeof readGgufFileInfo> =>
      readGgufFileInfo(path, { sourceType: 'filesystem', logWarnings: false });
    const was = await read(EMBEDDED_MODEL);
    t.equal(was.metadata.tokenizer.chat_template, SEEDLING_TEMPLATE);
    const bytes = await readFile(EMBEDDED_MODEL);
    t.ok(
      (await withTemplate(EMBEDDED_MODEL, bytes, SEEDLING_TEMPLATE)).equals(bytes),
      'the same template, the same bytes',
    );
    for (const template of ['', 'é', 'x'.repeat(9000)]) {
      const path = join(t.testdir(), 'other.gguf');
      const changed = await withTemplate(EMBEDDED_MODEL, bytes, template);
      await writeFile(path, changed);
      const is = await read(path);
      t.same(is.metadata, { ...was.metadata, tokenizer: { ...was.metadata.tokenizer, chat_template: template } });
      t.same(
        is.fullTensorInfo?.map(({ name, offset }) => [name, offset]),
        was.fullTensorInfo?.map(({ name, offset }) => [name, offset]),
      );
      const weights = (info: typeof is): number =>
        Math.ceil((info.totalMetadataSize + (info.totalTensorInfoSize ?? 0)) / 32) * 32;
      t.ok(changed.subarray(weights(is)).equals(bytes.subarray(weights(was))), 'the same weights');
    }
    await t.rejects(withTemplate(EMBEDDED_MODEL, bytes.subarray(0, 100), ''), /cut off|damaged/);
  },
);

t.test('llama.cpp’s probabilities equal PyTorch’s', async (t) => {
  const text = await readFile(`${sourceRoot}/bench/seedling/reference.json`, 'utf8');
  const references = JSON.parse(text) as Reference[];
  t.ok(references.length >= 20);
  const engine = await EngineDriver.start(EMBEDDED_MODEL, 1, { kind: 'decision', contextPerSeat: 1024 });
  t.teardown(() => engine.close());
  const apart: number[] = [];
  for (const { tokens, likeliest, logprobs } of references) {
    const input = Uint32Array.from(tokens.slice(0, -1));
    const questions = [
      { tail: Uint32Array.from(tokens.slice(-1)), labels: Uint32Array.from(likeliest), temperature: 1 },
    ];
    await engine.run(
      [{ kind: 'score', job: { input, questions, temperature: 1, scope: ALL_ACCOUNTS, isolate: true, seats: 1 } }],
      ({ output }) => {
        if (output.kind === 'answer') {
          output.probabilities.forEach((p, at) =>
            apart.push(Math.abs(Math.log(p * output.labelMass) - (logprobs[at] ?? NaN))),
          );
        }
        return undefined;
      },
    );
  }
  t.equal(
    apart.length,
    references.reduce((sum, { likeliest }) => sum + likeliest.length, 0),
  );
  t.ok(Math.max(...apart) < MOST_APART, `at most ${Math.max(...apart)} apart`);
  t.ok(apart.reduce((sum, one) => sum + one, 0) / apart.length < MEAN_APART);
});

t.test('its vocabulary makes training rows of every kind of example', async (t) => {
  const vocabulary = await loadVocabulary(EMBEDDED_MODEL);
  t.teardown(() => vocabulary.dispose());
  const maker = new RowMaker(vocabulary);
  for (let at = 0; at < 40; at++) {
    for (const split of ['train', 'held'] as const) {
      t.ok(maker.rows(decisionAt(5, at, split)).length > 0);
      t.ok(maker.rows(chatAt(5, at, split)).length > 0);
    }
  }
});

t.test('a question in a training row has the steps to its label as targets', async (t) => {
  const vocabulary = await loadVocabulary(EMBEDDED_MODEL);
  t.teardown(() => vocabulary.dispose());
  const id = (text: string): number => vocabulary.tokenize(text, false)[0] ?? -1;
  const question = (type: 'choice' | 'yes_no', answers: readonly string[], answer: number): Asked => ({
    type,
    question: 'Which color is it?',
    answers,
    answer,
    meanings: answers.map(() => undefined),
  });
  const rows = new RowMaker(vocabulary).rows({
    kind: 'decision',
    topic: 'color',
    input: 'It is green.',
    questions: [question('choice', ['red', 'green', 'blue'], 1), question('yes_no', ['yes', 'no'], 1)],
  });
  const targets = (group: number, weight: number): number[] =>
    [...rows.keys()]
      .filter((at) => at % ROW === 0 && rows[at + 2] === weight && rows[at + 3] === group)
      .map((at) => rows[at + 1] ?? -1);
  t.same(targets(1, 100), [id('B')], 'the label');
  t.same(targets(1, 99), [id(' green')], 'at the question’s end: the answer itself');
  t.same(targets(1, 50), [id('no'), id('yes'), id('no')], 'at an option’s end: whether it is the answer');
  t.same([targets(2, 100), targets(2, 99), targets(2, 50)], [[id('no')], [id('no')], []]);
});
