/** The whole sidecar over HTTP, streaming chat, against its engine process alone, measured in the same run. */
import { Agent } from 'node:http';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { EngineDriver } from '../support/engine-driver.js';
import { endlessEmbedded } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { stream, type Streamed, type Target } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

const STREAMS = [1, 8, 32];
const SEATS = 32;
const TOKENS = 64;
const RUNS = 5;
/** Of one run, so many at a time as there are streams. */
const REPLIES = 64;
const BODY = { model: CHAT, messages: [{ role: 'user', content: 'Tell me about the sea' }], max_tokens: TOKENS };

const file = await endlessEmbedded();

const teardowns = new Teardowns();
const sidecar = await Sidecar.start(teardowns, {
  config: {
    models: [
      {
        id: CHAT,
        kind: 'chat',
        file,
        seats: SEATS,
        contextPerSeat: 256,
        threads: 1,
        prefillTokensPerStep: 512,
        // All prompts are the same, and the engine alone evaluates each.
        prefixReuse: 'off',
        speculation: 'off',
      },
    ],
    development: { validateAnswers: false },
  },
});
const target: Target = { agent: new Agent({ keepAlive: true }), port: sidecar.port, key: sidecar.key };
const engine = await EngineDriver.start(file, SEATS);

/** REPLIES streams, so many at a time; returns tokens a second. */
async function overHttp(streams: number): Promise<{ replies: Streamed[]; rate: number }> {
  const replies: Streamed[] = [];
  const from = performance.now();
  while (replies.length < REPLIES) {
    const at = replies.length;
    const bodies = Array.from({ length: streams }, (_, i) => ({ ...BODY, seed: at + i }));
    replies.push(...(await Promise.all(bodies.map((body) => stream(target, body)))));
  }
  const seconds = (performance.now() - from) / 1000;
  return { replies, rate: replies.reduce((sum, { completionTokens }) => sum + completionTokens, 0) / seconds };
}

async function alone(sequences: number): Promise<number> {
  const { tokens, seconds } = await engine.rounds(REPLIES, sequences, { promptTokens, tokens: TOKENS });
  return tokens / seconds;
}

await overHttp(1);
const promptTokens = Number(sidecar.lines.findLast(({ event }) => event === 'request')?.['promptTokens']);
const rows: Row[] = [];
for (const streams of STREAMS) {
  await overHttp(streams);
  await alone(streams);
  const runs: { http: number; engine: number; replies: Streamed[] }[] = [];
  // In turn, so that other work of the machine affects both.
  for (let i = 0; i < RUNS; i++) {
    const { rate, replies } = await overHttp(streams);
    runs.push({ http: rate, engine: await alone(streams), replies });
  }
  const replies = runs.flatMap((run) => run.replies);
  const ttfts = replies.map(({ ttftMs }) => ttftMs);
  const gaps = replies.flatMap(({ gapsMs }) => gapsMs);
  rows.push({
    streams,
    'tokens/s over HTTP': median(runs.map((run) => run.http)),
    'tokens/s, engine alone': median(runs.map((run) => run.engine)),
    ratio: median(runs.map((run) => run.http / run.engine)),
    'TTFT p50 ms': median(ttfts),
    'TTFT p99 ms': quantile(ttfts, 0.99),
    'gap p50 ms': median(gaps),
    'gap p99 ms': quantile(gaps, 0.99),
    'pieces a reply': median(replies.map(({ pieces }) => pieces)),
  });
}
target.agent.destroy();
await engine.close();
await teardowns.run();

await keep('http-streams', {
  title: 'The whole sidecar over HTTP',
  about: [
    `Streaming chat on the embedded model (with an end token that never comes up): ${promptTokens} prompt tokens as rendered, ${TOKENS} generated, ${SEATS} seats, one compute thread. A run is ${REPLIES} replies, so many at once as there are streams, the next ones when all have ended; medians of ${RUNS} runs after one to warm up. The caller is a Node process on the same machine, so its work is in the figures.`,
    'Engine alone: the same model, prompt length, seats and number at once over the engine protocol, without a sidecar, each run after one over HTTP; the ratio is the median of these pairs. TTFT: request written to first text; gap: between two arrivals of text of one stream.',
  ],
  rows,
});
