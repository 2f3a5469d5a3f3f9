/**
 * The gaps between pieces of text of running streams while images beside them are encoded: paired with the same streams
 * without images, here and with llama-server. Needs `make peers` and `make engine-native`.
 */
import { Agent } from 'node:http';
import { join } from 'node:path';
import { dataUrl, png } from '../../test/support/images.js';
import { CACHE, embeddedTestModel } from '../../test/support/models.js';
import { SEEING, seeingSidecar } from '../../test/support/vision.js';
import { ensureProjector } from '../models/random-projector.js';
import { LlamaServer } from '../support/peers.js';
import { keep, markdown, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { stream, type Target } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

const STREAMS = 8;
const TOKENS = 600;
const PAIRS = 5;
/** While one server's streams run once: another server stops its streams for each, and must end too. */
const IMAGES_A_ROUND = 2;
const MOST_IMAGES = 2 * (2 + PAIRS * IMAGES_A_ROUND);
const CONTEXT = 4096;
const ENGINE_CORE = '0';
const VISION_CORE = '1';

const file = await embeddedTestModel();
/** The embedded model's. */
const WIDTH = 256;
const encoder = { width: 512, layers: 12, side: 336 };
const projector = await ensureProjector(join(CACHE, 'models'), 'mlp', WIDTH, encoder);

const messages = [{ role: 'user', content: 'Hello' }];
// A reward for repetition prevents the end token.
const FREE = { model: SEEING, messages, temperature: 0, frequency_penalty: -2, max_tokens: TOKENS };

/** All are different. Created before the measurement, since callers share this process. */
const images = Array.from({ length: MOST_IMAGES }, (_, shade) =>
  dataUrl(png(64, 48, (x, y) => [(x + shade * 7) & 255, (y * shade) & 255, shade & 255])),
);

/** Greedily llama-server repeats a token without text here. */
const TALKING = { temperature: 1, frequency_penalty: 0, ignore_eos: true, seed: 1 };

interface Look {
  readonly from: number;
  readonly to: number;
}

/** An image that differs from all before it, and one token about it. */
async function look(target: Target): Promise<Look> {
  const url = images.pop();
  if (url === undefined) throw new Error('there are no more images');
  const content = [
    { type: 'image_url', image_url: { url } },
    { type: 'text', text: 'What is it?' },
  ];
  const from = performance.now();
  await stream(target, { ...FREE, messages: [{ role: 'user', content }], max_tokens: 1 });
  return { from, to: performance.now() };
}

interface Round {
  /** Beside images, only those in which one was asked about. */
  readonly gaps: readonly number[];
  readonly looks: readonly Look[];
}

async function round(target: Target, beside: boolean): Promise<Round> {
  const over = new AbortController();
  const looks: Look[] = [];
  const looking = (async (): Promise<void> => {
    while (beside && !over.signal.aborted && looks.length < IMAGES_A_ROUND) looks.push(await look(target));
  })();
  const streams = await Promise.all(Array.from({ length: STREAMS }, () => stream(target, FREE)));
  over.abort();
  await looking;
  const counted = (from: number, to: number): boolean =>
    !beside || looks.some((each) => from < each.to && each.from < to);
  const gaps = streams.flatMap(({ timesMs }) =>
    timesMs.slice(1).flatMap((to, i) => (counted(timesMs[i] ?? to, to) ? [to - (timesMs[i] ?? to)] : [])),
  );
  return { gaps, looks };
}

async function measured(server: string, target: Target): Promise<Row> {
  await look(target);
  await round(target, false);
  const [alone, beside, looks]: [number[], number[], number[]] = [[], [], []];
  const ratios: { p50: number; p99: number }[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    const first = await round(target, pair % 2 === 1);
    const second = await round(target, pair % 2 === 0);
    const [without, withImages] = pair % 2 === 0 ? [first, second] : [second, first];
    alone.push(...without.gaps);
    beside.push(...withImages.gaps);
    looks.push(...withImages.looks.map(({ from, to }) => to - from));
    const of = (share: number): number => quantile(withImages.gaps, share) / quantile(without.gaps, share);
    ratios.push({ p50: of(0.5), p99: of(0.99) });
  }
  const row = {
    server,
    'p50 alone, ms': quantile(alone, 0.5),
    'p50 beside, ms': quantile(beside, 0.5),
    'p50 ratio, median of pairs': quantile(
      ratios.map(({ p50 }) => p50),
      0.5,
    ),
    'p99 alone, ms': quantile(alone, 0.99),
    'p99 beside, ms': quantile(beside, 0.99),
    'p99 ratio, median of pairs': quantile(
      ratios.map(({ p99 }) => p99),
      0.5,
    ),
    'longest beside, ms': Math.max(...beside),
    images: looks.length,
    'an image, ms': quantile(looks, 0.5),
  };
  process.stdout.write(`${markdown([row])}\n`);
  return row;
}

const teardowns = new Teardowns();
const seats = STREAMS + 1;
const model = { file, projector };
const more = { seats, contextPerSeat: CONTEXT, cores: ENGINE_CORE, vision: { cores: VISION_CORE } };
const sidecar = await seeingSidecar(teardowns, model, more);
const rows = [await measured('ra-sidecar', { agent: new Agent(), port: sidecar.port, key: sidecar.key })];
await teardowns.run();

const server = await LlamaServer.start(file, {
  threads: 1,
  slots: seats,
  contextPerSlot: CONTEXT,
  more: ['--mmproj', projector, '--jinja', '-fa', 'off', '--no-warmup'],
});
rows.push(await measured('llama-server', { agent: new Agent(), port: server.port, extras: TALKING }));
await server.close();

await keep('vision-gaps', {
  title: 'Gaps of text streams while images beside them are encoded',
  about: [
    `${STREAMS} streams of ${TOKENS} tokens of the embedded model (3 million weights), alone and beside one caller who sends ${IMAGES_A_ROUND} images one after another, each a new one, ${PAIRS} pairs. Beside images, gaps count in which one was asked about. The encoder has ${encoder.layers} layers of width ${encoder.width} over 576 patches, random weights; an image is 576 tokens. One compute thread each: the engine on core ${ENGINE_CORE}, the vision process on core ${VISION_CORE}, where the sidecar and the callers compute too; llama-server with one thread for both. Gaps between two arrivals of text at the caller.`,
  ],
  rows,
});
process.exit(0);
