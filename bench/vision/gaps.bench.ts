/**
 * The gaps between pieces of text of running streams while images beside them are encoded: paired with the same streams
 * without images, here and with llama-server. Needs `make peers` and `make engine-native`.
 */
import { Agent } from 'node:http';
import { join } from 'node:path';
import { dataUrl, png } from '../../test/support/images.js';
import { CACHE } from '../../test/support/models.js';
import { SEEING, seeingSidecar } from '../../test/support/vision.js';
import { SEND_MS } from '../../engine/scheduler/outbox.js';
import { ensureProjector } from '../models/random-projector.js';
import { endlessEmbedded } from '../support/models.js';
import { LlamaServer } from '../support/peers.js';
import { keep, markdown, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
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

const file = await endlessEmbedded();
/** The embedded model's. */
const WIDTH = 256;
const encoder = { width: 512, layers: 12, side: 336 };
const projector = await ensureProjector(join(CACHE, 'models'), 'mlp', WIDTH, encoder);

const messages = [{ role: 'user', content: 'Hello' }];
// Greedily this model repeats a token without text.
const FREE = { model: SEEING, messages, temperature: 1, seed: 1, max_tokens: TOKENS };

/** All are different. Created before the measurement, since callers share this process. */
const images = Array.from({ length: MOST_IMAGES }, (_, shade) =>
  dataUrl(png(64, 48, (x, y) => [(x + shade * 7) & 255, (y * shade) & 255, shade & 255])),
);

/** The API’s defaults, sent to llama-server; by default it would use top_k 40. */
const SAME = { top_k: 0, top_p: 1, min_p: 0 };

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

/** Between two arrivals of a stream's text, ms, and the tokens that came with the second: its part of the text, of all tokens. */
interface Gap {
  readonly ms: number;
  readonly tokens: number;
}

interface Round {
  /** Beside images, only those in which one was asked about. */
  readonly gaps: readonly Gap[];
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
  const gaps = streams.flatMap(({ timesMs, lengths, completionTokens }) => {
    const ofText = completionTokens / lengths.reduce((sum, length) => sum + length, 0);
    return timesMs.slice(1).flatMap((to, i): Gap[] => {
      const from = timesMs[i] ?? to;
      return counted(from, to) ? [{ ms: to - from, tokens: (lengths[i + 1] ?? NaN) * ofText }] : [];
    });
  });
  return { gaps, looks };
}

/** Milliseconds a token, over all gaps. */
function aToken(gaps: readonly Gap[]): number {
  return gaps.reduce((sum, { ms }) => sum + ms, 0) / gaps.reduce((sum, { tokens }) => sum + tokens, 0);
}

function gapAt(gaps: readonly Gap[], share: number): number {
  return quantile(
    gaps.map(({ ms }) => ms),
    share,
  );
}

async function measured(server: string, target: Target): Promise<Row> {
  await look(target);
  await round(target, false);
  const [alone, beside, looks]: [Gap[], Gap[], number[]] = [[], [], []];
  const ratios: { aToken: number; p99: number }[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    const first = await round(target, pair % 2 === 1);
    const second = await round(target, pair % 2 === 0);
    const [without, withImages] = pair % 2 === 0 ? [first, second] : [second, first];
    alone.push(...without.gaps);
    beside.push(...withImages.gaps);
    looks.push(...withImages.looks.map(({ from, to }) => to - from));
    ratios.push({
      aToken: aToken(withImages.gaps) / aToken(without.gaps),
      p99: gapAt(withImages.gaps, 0.99) / gapAt(without.gaps, 0.99),
    });
  }
  const row = {
    server,
    'ms a token alone': aToken(alone),
    'ms a token beside': aToken(beside),
    'ms a token ratio, median of pairs': median(ratios.map(({ aToken }) => aToken)),
    'p50 alone, ms': gapAt(alone, 0.5),
    'p50 beside, ms': gapAt(beside, 0.5),
    'p99 alone, ms': gapAt(alone, 0.99),
    'p99 beside, ms': gapAt(beside, 0.99),
    'p99 ratio, median of pairs': median(ratios.map(({ p99 }) => p99)),
    'p99 beside, in tokens alone': gapAt(beside, 0.99) / aToken(alone),
    'longest beside, ms': gapAt(beside, 1),
    images: looks.length,
    'an image, ms': quantile(looks, 0.5),
  };
  process.stdout.write(`${markdown([row])}\n`);
  return row;
}

const teardowns = new Teardowns();
const seats = STREAMS + 1;
const model = { file, projector };
const more = {
  ...{ seats, contextPerSeat: CONTEXT, cores: ENGINE_CORE, vision: { cores: VISION_CORE } },
  config: { development: { validateAnswers: false } },
};
const sidecar = await seeingSidecar(teardowns, model, more);
const rows = [await measured('ra-sidecar', { agent: new Agent(), port: sidecar.port, key: sidecar.key })];
await teardowns.run();

const server = await LlamaServer.start(file, {
  threads: 1,
  slots: seats,
  contextPerSlot: CONTEXT,
  more: ['--mmproj', projector, '--jinja', '-fa', 'off', '--no-warmup'],
});
rows.push(await measured('llama-server', { agent: new Agent(), port: server.port, extras: SAME }));
await server.close();

await keep('vision-gaps', {
  title: 'Gaps of text streams while images beside them are encoded',
  about: [
    `${STREAMS} streams of ${TOKENS} tokens of the embedded model (3 million weights, which never end a reply), temperature 1, alone and beside one caller who sends ${IMAGES_A_ROUND} images one after another, each a new one, ${PAIRS} pairs. Beside images, gaps count in which one was asked about. The encoder has ${encoder.layers} layers of width ${encoder.width} over 576 patches, random weights; an image is 576 tokens. One compute thread each: the engine on core ${ENGINE_CORE}, the vision process on core ${VISION_CORE}, where the sidecar and the callers compute too; llama-server with one thread for both. Gaps between two arrivals of text at the caller. Our engine lets steps shorter than ${SEND_MS} ms share a message, so a gap of its streams holds several tokens; llama-server sends each. Ms a token: all gaps over all their tokens, which are told by the length of the text.`,
  ],
  rows,
});
process.exit(0);
