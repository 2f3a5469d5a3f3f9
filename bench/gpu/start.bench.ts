/**
 * What an engine's start takes on a GPU, with the addon that is installed: the driver may have to compile kernels, and keeps what it
 * compiled for the next start. The arguments are those of case.ts.
 *
 *     node dist/bench/gpu/start.bench.js 8b cuda
 */
import { installedAddon } from '../support/addon.js';
import { EngineDriver } from '../support/engine-driver.js';
import type { Row } from '../support/results.js';
import { gpuCase } from './case.js';

const { file, gpu, trial, threads, keep } = await gpuCase();
const SEATS = 64;
const LOAD = trial ? { promptTokens: 64, tokens: 8 } : { promptTokens: 512, tokens: 32 };

const rows: Row[] = [];
for (const start of [1, 2]) {
  const from = performance.now();
  const engine = await EngineDriver.start(file, SEATS, {
    threads,
    gpu,
    contextPerSeat: 1024,
    prefillTokensPerStep: 0,
  });
  const readyMs = performance.now() - from;
  const first = await engine.round(1, LOAD);
  const second = await engine.round(1, LOAD);
  const full = await engine.round(SEATS, LOAD);
  const again = await engine.round(SEATS, LOAD);
  await engine.close();
  rows.push({
    addon: installedAddon(),
    start,
    'until ready, s': readyMs / 1000,
    'first reply, ms': first.seconds * 1000,
    'second reply, ms': second.seconds * 1000,
    'first full load, ms': full.seconds * 1000,
    'second full load, ms': again.seconds * 1000,
  });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
}
await keep(
  `start-${installedAddon()}`,
  'What an engine needs until it is ready',
  `${SEATS} seats; the file is in the page cache. Until ready: from the process's start, loading and warm-up included. A reply: ${LOAD.promptTokens} prompt tokens and ${LOAD.tokens} generated; full load: one on each seat.`,
  rows,
);
