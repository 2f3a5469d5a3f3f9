/** The whole sidecar over HTTP beside llama-server of the same commit, streaming chat, in one run on one machine. */
import { Agent } from 'node:http';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { EngineDriver } from '../support/engine-driver.js';
import { closedLoop, latencies, openLoop, seeded, tokensPerSecond, type Outcome } from '../support/load.js';
import { random13m, random150m } from '../support/models.js';
import { LlamaServer } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import type { Target } from '../support/streaming.js';

const CALLERS = [1, 8, 32];
/** Of one closed run, by the number of callers. */
const REPLIES: Readonly<Record<number, number>> = { 1: 8, 8: 32, 32: 64 };
const SEATS = 32;
const CONTEXT = 512;
const TOKENS = 64;
const RUNS = 5;
const THREADS = 1;
/** Open load: shares of what our own closed loop of 32 reached. */
const SHARES = [0.5, 0.8];
const OPEN_SECONDS = 15;

/** What our API does by default is said to llama-server; left alone it would cut to its top 40 and reuse prompts. */
const SAME = { top_k: 0, top_p: 1, min_p: 0, cache_prompt: false };

const rows: Row[] = [];
for (const [model, file] of [
  ['150m', await random150m()],
  ['13m', await random13m()],
] as const) {
  const teardowns: (() => Promise<void>)[] = [];
  const sidecar = await Sidecar.start(
    { teardown: (fn) => void teardowns.push(fn) },
    {
      config: {
        models: [{ id: CHAT, kind: 'chat', file, seats: SEATS, contextPerSeat: CONTEXT, threads: THREADS }],
        development: { validateAnswers: false },
        queue: { maxWaitMs: 120_000 },
      },
    },
  );
  const server = await LlamaServer.start(file, { threads: THREADS, slots: SEATS, contextPerSlot: CONTEXT });
  const engine = await EngineDriver.start(file, SEATS, { threads: THREADS, contextPerSeat: CONTEXT });
  const agent = new Agent({ keepAlive: true });
  const ours: Target = { agent, port: sidecar.port, key: sidecar.key };
  const theirs: Target = { agent, port: server.port, extras: SAME };

  const body = (temperature: number) => (i: number) => ({
    model: CHAT,
    messages: [{ role: 'user', content: `Tell me about the sea, part ${i}` }],
    max_tokens: TOKENS,
    temperature,
    seed: i,
  });
  await closedLoop(ours, 1, 1, body(0));
  const promptTokens = Number(sidecar.lines.findLast(({ event }) => event === 'request')?.['promptTokens']);

  const row = (
    load: string,
    temperature: number,
    pairs: readonly { ours: Outcome; theirs: Outcome; engine?: number }[],
  ): Row => {
    const mine = latencies(pairs.map((pair) => pair.ours));
    const other = latencies(pairs.map((pair) => pair.theirs));
    const alone = pairs.map((pair) => tokensPerSecond(pair.ours) / (pair.engine ?? NaN));
    return {
      model,
      load,
      temperature,
      'tokens/s, ours': median(pairs.map((pair) => tokensPerSecond(pair.ours))),
      'tokens/s, llama-server': median(pairs.map((pair) => tokensPerSecond(pair.theirs))),
      ratio: median(pairs.map((pair) => tokensPerSecond(pair.ours) / tokensPerSecond(pair.theirs))),
      'ours over our engine alone': pairs.some((pair) => pair.engine !== undefined) ? median(alone) : '',
      'TTFT p50/p99 ms, ours': `${mine.ttft.toFixed(1)} / ${mine.ttft99.toFixed(1)}`,
      'TTFT p50/p99 ms, llama-server': `${other.ttft.toFixed(1)} / ${other.ttft99.toFixed(1)}`,
      'gap p50/p99 ms, ours': `${mine.gap.toFixed(1)} / ${mine.gap99.toFixed(1)}`,
      'gap p50/p99 ms, llama-server': `${other.gap.toFixed(1)} / ${other.gap99.toFixed(1)}`,
    };
  };

  for (const temperature of [0, 1]) {
    let capacity = 0;
    for (const callers of CALLERS) {
      const replies = REPLIES[callers] ?? callers;
      const once = async (): Promise<{ ours: Outcome; theirs: Outcome; engine: number }> => {
        const mine = await closedLoop(ours, callers, replies, body(temperature));
        const other = await closedLoop(theirs, callers, replies, body(temperature));
        const alone = await engine.rounds(replies, callers, { promptTokens, tokens: TOKENS, temperature });
        return { ours: mine, theirs: other, engine: alone.tokens / alone.seconds };
      };
      await once();
      const pairs = [];
      for (let i = 0; i < RUNS; i++) pairs.push(await once());
      rows.push(row(`closed, ${callers}`, temperature, pairs));
      process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
      capacity = median(pairs.map((pair) => pair.ours.replies.length / pair.ours.seconds));
    }
    for (const share of SHARES) {
      const rate = capacity * share;
      const pair = {
        ours: await openLoop(ours, rate, OPEN_SECONDS, seeded(1), body(temperature)),
        theirs: await openLoop(theirs, rate, OPEN_SECONDS, seeded(1), body(temperature)),
      };
      rows.push(row(`open, ${rate.toPrecision(2)} a second`, temperature, [pair]));
      process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
    }
  }
  agent.destroy();
  await engine.close();
  await server.close();
  for (const teardown of teardowns) await teardown();
}

await keep('llama-server', {
  title: 'The whole sidecar beside llama-server',
  about: [
    `Streaming chat over HTTP: ${TOKENS} tokens a reply, ${SEATS} seats or slots of ${CONTEXT} tokens, ${THREADS} compute thread each, the same model, the same bodies, no prompt reuse on either side (prompts differ). Closed: so many callers, each sends when its last reply ended; medians of ${RUNS} runs, ours and theirs in turn. Open: Poisson arrivals at ${SHARES.join(' and ')} of the rate of our closed loop of 32, ${OPEN_SECONDS} s each.`,
    'llama-server is told to sample as our API does by default (no top-k, no min-p). It is the native build with OpenMP of `make peers`; ours runs the prebuilt addon. The caller is one Node process on the same two cores, so its work is in the figures of both. TTFT: request written to first text; gap: between two pieces of text of one stream.',
    'Our engine alone: the same prompts’ length and number at once over the engine protocol, in the same round.',
  ],
  rows,
});
