/** The whole sidecar over HTTP beside llama-server of the same commit, streaming chat, in one run on one machine. */
import { Agent } from 'node:http';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { EngineDriver, type Load as EngineLoad } from './engine-driver.js';
import { closedLoop, latencies, openLoop, seeded, tokensPerSecond, type Outcome } from './load.js';
import { childWith, peakMiB } from './memory.js';
import { LlamaServer, NO_PROMPT_CACHE } from './peers.js';
import type { Row } from './results.js';
import { median } from './stats.js';
import type { Target } from './streaming.js';
import { Teardowns } from './teardowns.js';

/** The API’s defaults, sent to llama-server; by default it would use top_k 40 and reuse prompts. */
const SAME = { top_k: 0, top_p: 1, min_p: 0, cache_prompt: false };

/** Tokens of a reply that only warms up. */
const WARM_UP_TOKENS = 8;

/** No request is refused for its wait: the bench measures speed. */
const PATIENCE_MS = 600_000;

/** The defaults, sent to the engine alone as to the sidecar’s. 0: as many as suit the device. */
const PROMPTS = { prefillTokensPerStep: 0, prefillShare: 50 } as const;

/** In the table, in place of cores. */
export const ANYWHERE = 'any';

export interface BesideCase {
  /** For the table. */
  readonly model: string;
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
  /** Where each of the three computes; absent: anywhere. */
  readonly cores?: string;
  readonly seats: number;
  /** Tokens of a seat or slot. */
  readonly context: number;
  /**
   * Of a reply, on average: from half to one and a half times as many. With equal lengths all would begin and end
   * together.
   */
  readonly tokens: number;
  /** Callers at once, and how many replies a closed run of them is. */
  readonly closed: ReadonlyMap<number, number>;
  /** Shares of the highest rate of the sidecar’s closed loops, at the first of the temperatures. */
  readonly open: readonly number[];
  readonly openSeconds: number;
  readonly runs: number;
  /** Short replies of each server before it is measured: JavaScript is faster after a while. */
  readonly warmUp: number;
  readonly temperatures: readonly number[];
  readonly prompt: (i: number) => string;
  /** Both reuse prefixes and speculate as they come. Absent: neither does, since prompts begin alike. */
  readonly defaults?: true;
}

interface Pair {
  readonly ours: Outcome;
  readonly theirs: Outcome;
  /** Tokens a second of the engine alone, on prompts and replies of the same lengths. */
  readonly engine?: number;
  /** The most memory so far, MiB. */
  readonly peaks?: Peaks;
}

interface Peaks {
  readonly sidecar: number;
  readonly engine: number;
  readonly theirs: number;
}

/** The measures of one load. */
interface Load {
  readonly name: string;
  readonly temperature: number;
  readonly pairs: Pair[];
}

/** So many callers that send so many requests, of so many tokens each. */
interface Turn {
  readonly callers: number;
  readonly replies: number;
  readonly temperature: number;
  readonly length: (i: number) => number;
}

/** Both servers, and the engine alone, in one life of theirs. */
interface Servers {
  readonly ours: Target;
  readonly theirs: Target;
  readonly engine: EngineDriver;
  /** Of each prompt, as our sidecar renders it. */
  readonly promptTokens: number;
  readonly peaks: () => Promise<Peaks>;
  readonly close: () => Promise<void>;
}

/**
 * A row for each load and temperature, medians of paired runs. Each run has its own processes: the placement of their
 * memory changes some percent, and stays for a life.
 */
export async function besideRows(options: BesideCase): Promise<Row[]> {
  const { tokens, closed, open, temperatures, runs } = options;
  const lengthOf = (i: number): number => Math.round(tokens * (0.5 + ((i * 37) % 64) / 63));
  // No prompt is sent twice to one server.
  let sent = 0;
  const body =
    (temperature: number, length = lengthOf) =>
    (i: number) => ({
      model: CHAT,
      messages: [{ role: 'user', content: options.prompt(sent + i) }],
      max_tokens: length(i),
      temperature,
      seed: i,
    });
  const closedOnce = async (
    { ours, theirs, engine, promptTokens, peaks }: Servers,
    { callers, replies, temperature, length }: Turn,
  ): Promise<Pair> => {
    const mine = await closedLoop(ours, callers, replies, body(temperature, length));
    const other = await closedLoop(theirs, callers, replies, body(temperature, length));
    const load = (i: number): EngineLoad => ({ promptTokens, tokens: length(i), temperature });
    const alone = await engine.closedLoop(callers, replies, load);
    sent += replies;
    return { ours: mine, theirs: other, engine: alone.tokens / alone.seconds, peaks: await peaks() };
  };
  const most = Math.max(...closed.keys());
  const loads = temperatures.flatMap((temperature) =>
    [...closed].map(([callers, replies]) => ({
      name: `closed, ${callers}`,
      pairs: [] as Pair[],
      callers,
      replies,
      temperature,
      length: lengthOf,
    })),
  );
  const opened: Load[] = [];
  for (let run = 0; run < runs; run++) {
    const servers = await begin(options, body(0)(0));
    const short = { callers: most, replies: options.warmUp, length: () => WARM_UP_TOKENS };
    await closedOnce(servers, { ...short, temperature: temperatures[0] ?? 0 });
    for (const load of loads) load.pairs.push(await closedOnce(servers, load));
    for (const temperature of run === runs - 1 ? temperatures.slice(0, 1) : []) {
      const full = loads.find((load) => load.callers === most && load.temperature === temperature)?.pairs ?? [];
      for (const share of open) {
        const rate = share * median(full.map(({ ours }) => ours.replies.length / ours.seconds));
        const ours = await openLoop(servers.ours, rate, options.openSeconds, seeded(1), body(temperature));
        const theirs = await openLoop(servers.theirs, rate, options.openSeconds, seeded(1), body(temperature));
        sent += Math.max(ours.replies.length, theirs.replies.length);
        opened.push({ name: `open, ${rate.toPrecision(2)} a second`, temperature, pairs: [{ ours, theirs }] });
      }
    }
    await servers.close();
  }
  return temperatures.flatMap((temperature) =>
    [...loads, ...opened]
      .filter((load) => load.temperature === temperature)
      .map(({ name, pairs }) => rowOf(options, name, temperature, pairs)),
  );
}

/** Starts both servers and the engine; `probe` is sent once. Their owner closes them. */
async function begin(options: BesideCase, probe: object): Promise<Servers> {
  const { file, threads, gpu, cores, seats, context, defaults } = options;
  const ownReuse = defaults ? {} : { prefixReuse: 'off', speculation: 'off' };
  const where = cores === undefined ? {} : { cores };
  const teardowns = new Teardowns();
  const sidecar = await Sidecar.start(teardowns, {
    config: {
      models: [
        {
          id: CHAT,
          kind: 'chat',
          file,
          seats,
          contextPerSeat: context,
          threads,
          gpu,
          ...ownReuse,
          ...PROMPTS,
          ...where,
        },
      ],
      development: { validateAnswers: false },
      queue: { maxWaitMs: PATIENCE_MS },
    },
  });
  const more = ['-ngl', gpu === false ? '0' : '99', ...(defaults ? [] : NO_PROMPT_CACHE)];
  const server = await LlamaServer.start(file, { threads, slots: seats, contextPerSlot: context, ...where, more });
  const engine = await EngineDriver.start(file, seats, {
    threads,
    gpu,
    contextPerSeat: context,
    ...PROMPTS,
    ...where,
  });
  // A connection per request: llama-server closes idle ones, just when the next request is on its way.
  const agent = new Agent({ keepAlive: false });
  const ours: Target = { agent, port: sidecar.port, key: sidecar.key };
  const theirs: Target = { agent, port: server.port, extras: { ...SAME, cache_prompt: defaults === true } };
  await closedLoop(ours, 1, 1, () => probe);
  const promptTokens = Number((await sidecar.logged('request'))['promptTokens']);
  const close = async (): Promise<void> => {
    agent.destroy();
    await engine.close();
    await server.close();
    await teardowns.run();
  };
  const engineOfOurs = await childWith(sidecar.pid, 'engine/main.js');
  const peaks = async (): Promise<Peaks> => ({
    sidecar: await peakMiB(sidecar.pid),
    engine: await peakMiB(engineOfOurs),
    theirs: await peakMiB(server.pid),
  });
  return { ours, theirs, engine, promptTokens, peaks, close };
}

function rowOf({ model, tokens, cores }: BesideCase, load: string, temperature: number, pairs: readonly Pair[]): Row {
  const mine = latencies(pairs.map((pair) => pair.ours));
  const other = latencies(pairs.map((pair) => pair.theirs));
  const engines = pairs.flatMap(({ engine, ours }) => (engine === undefined ? [] : [tokensPerSecond(ours) / engine]));
  const peak = (of: (peaks: Peaks) => number): number | string => {
    const all = pairs.flatMap(({ peaks }) => (peaks ? [of(peaks)] : []));
    return all.length > 0 ? median(all) : '';
  };
  const both = (a: number, b: number): string => `${a.toFixed(1)} / ${b.toFixed(1)}`;
  return {
    model,
    'tokens a reply': tokens,
    cores: cores ?? ANYWHERE,
    load,
    temperature,
    'tokens/s, ours': median(pairs.map((pair) => tokensPerSecond(pair.ours))),
    'tokens/s, llama-server': median(pairs.map((pair) => tokensPerSecond(pair.theirs))),
    // A server that keeps up with an open load gives what was asked for, whatever it could.
    ratio: pairs.some(({ ours }) => ours.ended !== undefined)
      ? ''
      : median(pairs.map((pair) => tokensPerSecond(pair.ours) / tokensPerSecond(pair.theirs))),
    'ours over our engine alone': engines.length > 0 ? median(engines) : '',
    'TTFT p50/p99 ms, ours': both(mine.ttft, mine.ttft99),
    'TTFT p50/p99 ms, llama-server': both(other.ttft, other.ttft99),
    'gap p50/p99 ms, ours': both(mine.gap, mine.gap99),
    'gap p50/p99 ms, llama-server': both(other.gap, other.gap99),
    'peak MiB, sidecar': peak(({ sidecar }) => sidecar),
    'peak MiB, engine': peak(({ engine }) => engine),
    'peak MiB, llama-server': peak(({ theirs }) => theirs),
  };
}
