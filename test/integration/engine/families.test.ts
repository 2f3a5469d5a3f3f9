/**
 * One tiny random model of each architecture family in everything that an engine does with a model. The results are the
 * table in docs/models.md: `node dist/test/integration/engine/families.test.js write` writes it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { BatchDecoder } from '../../../engine/llama/batch-decoder.js';
import { FAMILIES } from '../../support/families/families.js';
import { goldenPrompt, readReplies, REPLY_TOKENS } from '../../goldens/replies.js';
import { RealLoop } from '../../support/real-loop.js';
import { sourceRoot } from '../../support/source-root.js';
import { job as plain } from '../../support/step-bench.js';
import { cpuLlama } from '../../support/llama.js';

const PAGE = `${sourceRoot}/docs/models.md`;
const [BEGIN, END] = ['<!-- families: begin -->', '<!-- families: end -->'];
const REPLY = 12;
const CHUNK = 64;
/** The most that other sequences in a batch may change a probability, on random weights. */
const TOLERANCE = 0.03;
const ROOM = { bytes: 64 * 2 ** 20, maxAgeMs: 1e9 } as const;
const OPTIONS = { seats: 8, checkpointBytes: 64 * 1024 * 1024 } as const;

const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

const words = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: Uint32Array, more: Partial<GenerateJob> = {}): GenerateJob =>
  plain(prompt, { maxTokens: REPLY, ...more });

const ask = (isolate: boolean): ScoreJob => ({
  input: words(CHUNK + 9),
  questions: Array.from({ length: 8 }, (_, salt) => ({
    tail: words(9, salt),
    labels: Uint32Array.of(70, 71, 72),
    temperature: 1,
  })),
  temperature: 1,
  isolate,
  seats: isolate ? 1 : 8,
  scope: ALL_ACCOUNTS,
});

const goldens = await readReplies();
const rows: string[] = [];

for (const { name, state, model: file } of FAMILIES) {
  t.test(name, async (t) => {
    const model = await llama.loadModel({ modelPath: await file() });
    const loop = await RealLoop.make(model, OPTIONS);
    const fresh = await RealLoop.make(model, { ...OPTIONS, prefixReuse: 'off' });
    const { decoder } = loop;
    t.ok(decoder instanceof BatchDecoder);
    t.equal(decoder.states.truncatable, state === 'every token');

    const golden = goldens.families[name];
    const greedy = await fresh.run(chat(goldenPrompt(golden?.prompt ?? 0), { maxTokens: REPLY_TOKENS }));
    t.same(greedy.tokens, [golden?.tokens], 'the greedy reply of llama-server');
    t.ok(greedy.calls < greedy.decodes, 'steps follow one another');

    let prompt = words(2 * CHUNK + 20);
    for (const cached of [0, 2 * CHUNK]) {
      const ran = await loop.run(chat(prompt));
      t.same(ran.tokens, (await fresh.run(chat(prompt))).tokens, 'a turn equals the one on a new context');
      t.equal(ran.cached, cached);
      prompt = Uint32Array.of(...prompt, ...(ran.tokens[0] ?? []), ...words(30, 1));
    }

    const single = await RealLoop.make(model, { ...OPTIONS, seats: 1, prefixCache: ROOM });
    const first = words(2 * CHUNK + 20, 7);
    const replied = await single.run(chat(first));
    await single.run(chat(words(CHUNK, 8)));
    const next = chat(Uint32Array.of(...first, ...(replied.tokens[0] ?? []), ...words(30, 1)));
    const restored = await single.run(next);
    t.match(single.cache, { hits: 1, restoredTokens: 2 * CHUNK }, 'an overwritten state is restored');
    t.same(restored.tokens, (await fresh.run(next)).tokens, 'and goes on as a new context');
    await single.dispose();

    const alone = await loop.run(ask(true));
    const together = await loop.run(ask(false));
    for (const [i, { probabilities }] of alone.answers.entries()) {
      const off = Math.max(
        ...probabilities.map((p, j) => Math.abs(p - (together.answers[i]?.probabilities[j] ?? NaN))),
      );
      t.ok(off < TOLERANCE, `question ${i} beside seven others is off by ${off}`);
    }

    const own = words(CHUNK + 9, 5);
    const three = await loop.run(chat(own, { n: 3, seats: 3 }));
    t.equal(three.evaluated, own.length + 2 + 3 * (REPLY - 1), 'three replies share one prompt');

    const neighbour = loop.start(chat(words(40, 2), { maxTokens: 60 }));
    await neighbour.speaks;
    const bad = loop.start(chat(Uint32Array.of(...words(20, 3), 1 << 30)));
    await t.rejects(bad.ran, 'llama.cpp refuses its token');
    t.equal((await neighbour.ran).tokens[0]?.length, 60, 'its neighbour continues');

    const left = loop.start(chat(words(40, 4), { maxTokens: 500 }));
    await left.speaks;
    left.cancel();
    t.same((await loop.run(chat(own))).tokens, (await fresh.run(chat(own))).tokens, 'and everything is as before');
    await loop.dispose();
    await fresh.dispose();
    await model.dispose();
    rows.push(`| ${name} | ${state} | ${decoder.states.truncatable ? 'from any token' : 'from checkpoints'} |`);
  });
}

t.test('the page has these results', async (t) => {
  const table = [
    BEGIN,
    '',
    '| architecture | past state of | a later prompt continues |',
    '| --- | --- | --- |',
    ...rows,
    '',
    END,
  ].join('\n');
  const page = readFileSync(PAGE, 'utf8');
  const found = page.slice(page.indexOf(BEGIN), page.indexOf(END) + END.length);
  const cells = (text: string): string[] => text.split('\n').map((line) => line.replaceAll(/[\s-]+/g, ' '));
  if (process.argv.includes('write')) writeFileSync(PAGE, page.replace(found, table));
  else t.same(cells(found), cells(table));
});
