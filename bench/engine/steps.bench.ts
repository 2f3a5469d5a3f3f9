/** The throughput of the engine process alone, driven over its protocol: tokens a second by the number of sequences. */
import { EngineDriver, type Round } from '../support/engine-driver.js';
import { endlessEmbedded, random13m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const SEQUENCES = [1, 8, 32, 64];
const LOAD = { promptTokens: 16, tokens: 64 };
const RUNS = 5;
/** Of one run, so many at a time as there are sequences. */
const REPLIES = 64;

/** `native`: the addon of `make engine-native` is in place; the results are kept beside those of the prebuilt one. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';

const rows: Row[] = [];
for (const [model, file] of [
  ['embedded', await endlessEmbedded()],
  ['13m, GPT-2 vocabulary', await random13m()],
] as const) {
  const engine = await EngineDriver.start(file, Math.max(...SEQUENCES));
  for (const sequences of SEQUENCES) {
    await engine.rounds(REPLIES, sequences, LOAD);
    const rounds: Round[] = [];
    for (let i = 0; i < RUNS; i++) rounds.push(await engine.rounds(REPLIES, sequences, LOAD));
    const perToken = (spent: (round: Round) => number): number =>
      median(rounds.map((round) => (spent(round) / round.tokens) * 1e6));
    rows.push({
      model,
      sequences,
      'tokens/s': median(rounds.map(({ tokens, seconds }) => tokens / seconds)),
      slowest: Math.min(...rounds.map(({ tokens, seconds }) => tokens / seconds)),
      fastest: Math.max(...rounds.map(({ tokens, seconds }) => tokens / seconds)),
      'tokens a reply': median(rounds.map(({ tokens }) => tokens / REPLIES)),
      'main thread, µs a token': perToken(({ mainThreadSeconds }) => mainThreadSeconds),
      'whole process, µs of CPU a token': perToken(({ cpuSeconds }) => cpuSeconds),
    });
  }
  await engine.close();
}

await keep(build === 'native' ? 'engine-steps-native' : 'engine-steps', {
  title: `The engine process alone, ${build} addon`,
  about: [
    `Our engine process over the messages of engine/protocol/messages.ts: ${LOAD.promptTokens} prompt tokens and ${LOAD.tokens} generated per sequence, temperature 1, one compute thread. A run is ${REPLIES} replies, so many at once as there are sequences, the next ones when all have ended. Tokens generated over the time from the first job sent to the last one done, prefill included; medians of ${RUNS} runs after one to warm up.`,
    "The main thread is where the engine's JavaScript runs (the step loop, the decoder, the messages). llama.cpp computes and samples on other threads. CPU time as Linux counts it per thread, so it includes no waiting.",
    'embedded: the default model with an end token that never comes up. 13m: the recipe of bench/models/recipes.ts, random weights.',
  ],
  rows,
});
