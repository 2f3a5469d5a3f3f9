/** The file that is served by default: its properties, and that llama.cpp computes what it was trained to. */
import { readFile, stat } from 'node:fs/promises';
import t from 'tap';
import { EngineDriver } from '../../../../bench/support/engine-driver.js';
import { SEEDLING_TEMPLATE } from '../../../../bench/seedling/template.js';
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

t.test('small, a Llama, for contexts of 8,192 tokens, with the template of its sources', async (t) => {
  t.ok((await stat(EMBEDDED_MODEL)).size < 12e6);
  const { metadata } = await readGgufFileInfo(EMBEDDED_MODEL, { sourceType: 'filesystem', logWarnings: false });
  t.equal(metadata.general.architecture, 'llama');
  t.ok((metadata.llama?.context_length ?? 0) >= 8192);
  t.equal(metadata.tokenizer.chat_template, SEEDLING_TEMPLATE);
});

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
