/**
 * Speculation by prompt lookup: what it gains where text repeats, what it costs where none does, and how well the number of drafts is
 * chosen. Sections can be run alone, by their names: edits, beside, novel, chosen, held. The others' rows stay as they were.
 */
import { grammarText } from '../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../engine/grammar/schema.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import { cpuLlama } from '../../test/support/llama.js';
import { generateJob } from '../../test/support/generate-job.js';
import { replyBySeed } from '../../test/support/known-replies.js';
import { RealLoop, type Ran } from '../../test/support/real-loop.js';
import {
  DRAFT_LENGTHS,
  engineAddon,
  MOST_LOGITS,
  type AddonStepCosts,
  type EngineAddon,
} from '../../engine/llama/addon.js';
import { RandomWords } from '../models/random-weights.js';
import { counted, knownEdits, QUOTES, quotesOf } from '../support/edits.js';
import { EngineDriver } from '../support/engine-driver.js';
import { random150m, successor150m } from '../support/models.js';
import { batchedBench, LlamaServer, NO_PROMPT_CACHE } from '../support/peers.js';
import { keep, keptRows, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const NAME = 'speculation';
/** By callers: edits, one for each caller at a time. */
const EDITS = { 1: 4, 8: 8 } as const;
const CALLERS = [1, 8] as const;
const RUNS = 3;
/** Of random replies: callers, tokens of each reply, and pairs of runs, of which every other one begins with `off`. */
const NOVEL = [
  [1, 64, 24],
  [8, 48, 12],
  [32, 32, 8],
  [64, 24, 8],
] as const;
/** Of replies that are partly as in the prompt: callers, tokens of each reply, and rounds, of which every other one is in the opposite order. */
const CHOSEN = [
  [1, 128, 8],
  [8, 48, 12],
] as const;
const SHARES = [0, 0.5, 0.8, 0.95, 1] as const;
/** A number of drafts with less than this part of the best rate of a first run, of a quarter of the tokens, cannot be the best: it has that run's figure. */
const HOPEFUL = 0.5;
/** What `novel` and `chosen` may take each, ms: a row whose time is over has fewer runs, and says so. */
const SECTION_MS = 60_000 * Number(process.argv[4] ?? 12);
const CONTEXT = 4096;
/** Of replies without a known text. */
const SHORT_CONTEXT = 512;
/** GPT-2's: where a step with drafts would have more logits than it may, that number of drafts has no column. */
const VOCABULARY = 50_257;
/** Of replies in a schema: pairs of runs, of which every other one begins with `off`. */
const HELD_RUNS = 4;
/** By who checks a grammar: its stacks, of which a thread's has so many that it makes masks. */
const STACKS = { 'within the step': 1, 'by the thread': 10_000 } as const;
const THREADS = Number(process.argv[3] ?? 1);

/** A prompt, and a reply that is known before. */
interface Replay {
  readonly prompt: readonly number[];
  readonly reply: readonly number[];
  readonly format?: GenerateJob['format'];
}

interface Timed {
  readonly perSecond: number;
  readonly drafted: number;
  readonly accepted: number;
  readonly tokensPerDecode: number;
}

type Mode = 'off' | 'auto';

/** A setting, or an index of DRAFT_LENGTHS for a fixed number of drafts. */
type Way = Mode | number;

const NOTHING: Timed = { perSecond: NaN, drafted: 0, accepted: 0, tokensPerDecode: NaN };

/** Loops on one model that are closed at the end of a section. */
class Loops {
  readonly #open: RealLoop[] = [];

  async make(file: string, seats: number, speculation: Mode): Promise<RealLoop> {
    const options = { seats, contextPerSeat: CONTEXT, prefillTokensPerStep: 256, prefixReuse: 'any' } as const;
    const made = await RealLoop.load(file, { ...options, speculation, threads: THREADS });
    this.#open.push(made);
    return made;
  }

  async close(): Promise<void> {
    for (const each of this.#open.splice(0)) await each.dispose();
  }
}

/** All replays at once. Their prompts are evaluated before, so that the time is that of the replies' tokens. */
async function timed(loop: RealLoop, replays: readonly Replay[]): Promise<Timed> {
  const forget = replyBySeed(new Map(replays.map(({ reply }, seed) => [seed, reply])));
  const job = ({ prompt, reply, format }: Replay, seed: number) =>
    generateJob(prompt, { maxTokens: reply.length, seed, mayVary: true, ...(format && { format }) });
  await Promise.all(replays.map((replay, seed) => loop.run({ ...job(replay, seed), maxTokens: 1 })));
  const from = performance.now();
  const ran = await Promise.all(replays.map((replay, seed) => loop.run(job(replay, seed))));
  const seconds = (performance.now() - from) / 1000;
  forget();
  for (const [i, { tokens }] of ran.entries())
    if (tokens[0]?.join() !== replays[i]?.reply.join()) throw new Error('a reply is not what it was to be');
  const sum = (of: (each: Ran) => number): number => ran.reduce((all, each) => all + of(each), 0);
  const tokens = sum((each) => each.tokens[0]?.length ?? 0);
  const decodes = Math.max(...ran.map((each) => each.decodes));
  return {
    perSecond: tokens / seconds,
    drafted: sum(({ drafted }) => drafted),
    accepted: sum(({ accepted }) => accepted),
    tokensPerDecode: tokens / replays.length / decodes,
  };
}

/** So many at a time, one group after another; figures of all. */
async function grouped(loop: RealLoop, replays: readonly Replay[], callers: number): Promise<Timed> {
  const all: Timed[] = [];
  for (let at = 0; at < replays.length; at += callers) all.push(await timed(loop, replays.slice(at, at + callers)));
  const sum = (of: (each: Timed) => number): number => all.reduce((one, each) => one + of(each), 0);
  return {
    perSecond: median(all.map(({ perSecond }) => perSecond)),
    drafted: sum(({ drafted }) => drafted),
    accepted: sum(({ accepted }) => accepted),
    tokensPerDecode: median(all.map(({ tokensPerDecode }) => tokensPerDecode)),
  };
}

/** Edits from this repository's history, with the tokens that their texts have. */
async function edits(): Promise<Row[]> {
  const file = await random150m();
  const llama = await cpuLlama(1);
  const model = await llama.loadModel({ modelPath: file, vocabOnly: true });
  const replays = knownEdits(Math.max(...Object.values(EDITS))).map(({ request, before, after }): Replay => ({
    prompt: [...model.tokenize(`${before}\n\n${request}\n\n`)].map(Number),
    reply: [...model.tokenize(after)].map(Number),
  }));
  await llama.dispose();
  const rows: Row[] = [];
  for (const callers of CALLERS) {
    // All as long as the shortest: those of llama-batched-bench end in the same step, too.
    const asked = replays.slice(0, EDITS[callers]);
    const tokens = Math.min(...asked.map(({ reply }) => reply.length));
    const some = asked.map(({ prompt, reply }): Replay => ({ prompt, reply: reply.slice(0, tokens) }));
    const loops = new Loops();
    const [off, auto] = [await loops.make(file, callers, 'off'), await loops.make(file, callers, 'auto')];
    const pairs: { off: Timed; auto: Timed }[] = [];
    for (let run = 0; run < RUNS; run += 1)
      pairs.push({ off: await grouped(off, some, callers), auto: await grouped(auto, some, callers) });
    await loops.close();
    const promptTokens = Math.round(some.reduce((sum, { prompt }) => sum + prompt.length, 0) / some.length);
    const shape = { promptTokens, tokens };
    const bare = await batchedBench(file, { threads: THREADS, sequences: [callers], libraries: 'npm', ...shape });
    const auto0 = pairs.map((pair) => pair.auto);
    rows.push({
      section: 'edits',
      callers,
      what: `first ${tokens} tokens of ${some.length} edits, prompts of ${promptTokens}`,
      'tokens/s, off': median(pairs.map((pair) => pair.off.perSecond)),
      'tokens/s, auto': median(auto0.map(({ perSecond }) => perSecond)),
      ratio: median(pairs.map((pair) => pair.auto.perSecond / pair.off.perSecond)),
      'tokens/s, llama-batched-bench': bare[0]?.generating ?? NaN,
      'drafts that came': median(auto0.map(({ accepted, drafted }) => accepted / drafted)),
      'tokens a decode': median(auto0.map(({ tokensPerDecode }) => tokensPerDecode)),
    });
  }
  return rows;
}

/** llama-server's ways of speculating without a model, as they come. */
const THEIRS = ['none', 'ngram-simple', 'ngram-mod'] as const;

/** The same edits with ids that count upwards, which a model says by itself: beside llama-server. */
async function beside(): Promise<Row[]> {
  const file = await successor150m();
  const llama = await cpuLlama(1);
  const model = await llama.loadModel({ modelPath: file, vocabOnly: true });
  const tokenize = (text: string): number[] => [...model.tokenize(text)].map(Number);
  const replays = knownEdits(Math.max(...Object.values(EDITS))).map((edit, i): Replay => {
    const first = 1000 + 5000 * (i % 8);
    const { before, after } = counted(edit, first + 1, tokenize);
    return { prompt: [...before, first], reply: after };
  });
  await llama.dispose();
  const rows: Row[] = [];
  for (const callers of CALLERS) {
    const some = replays.slice(0, EDITS[callers]);
    const rates: Record<string, number> = {};
    for (const mode of ['off', 'auto'] as const) rates[`ours, ${mode}`] = await ours(file, some, callers, mode);
    for (const type of THEIRS) rates[`llama-server, ${type}`] = await theirs(file, some, callers, type);
    const best = Math.max(...THEIRS.map((type) => rates[`llama-server, ${type}`] ?? 0));
    rows.push({
      section: 'beside',
      callers,
      what: `${some.length} edits, ids that count upwards`,
      'tokens/s, off': rates['ours, off'] ?? NaN,
      'tokens/s, auto': rates['ours, auto'] ?? NaN,
      ratio: (rates['ours, auto'] ?? NaN) / (rates['ours, off'] ?? NaN),
      ...Object.fromEntries(
        THEIRS.map((type) => [`tokens/s, llama-server ${type}`, rates[`llama-server, ${type}`] ?? NaN]),
      ),
      'ours over llama-server’s best': (rates['ours, auto'] ?? NaN) / best,
    });
  }
  return rows;
}

/** Tokens a second of our engine process, the prompts evaluated before; the median of the groups. */
async function ours(file: string, replays: readonly Replay[], callers: number, speculation: Mode): Promise<number> {
  const setup = { threads: THREADS, contextPerSeat: CONTEXT, prefillTokensPerStep: 256, prefixReuse: 'any' } as const;
  const engine = await EngineDriver.start(file, callers, { ...setup, speculation });
  const rates: number[] = [];
  for (let at = 0; at < replays.length; at += callers) {
    const some = replays.slice(at, at + callers);
    const run = async (tokensOf: (replay: Replay) => number): Promise<number> => {
      let tokens = 0;
      const jobs = some.map((each) => ({
        kind: 'generate' as const,
        job: generateJob(each.prompt, { temperature: 0, maxTokens: tokensOf(each) }),
      }));
      await engine.run(jobs, ({ output }) => {
        if (output.kind === 'finished') tokens += output.completionTokens;
        return undefined;
      });
      return tokens;
    };
    await run(() => 1);
    const from = performance.now();
    const tokens = await run(({ reply }) => reply.length);
    rates.push(tokens / ((performance.now() - from) / 1000));
  }
  await engine.close();
  return median(rates);
}

/** The same of llama-server over HTTP, whole replies. */
async function theirs(file: string, replays: readonly Replay[], callers: number, type: string): Promise<number> {
  const more = [...NO_PROMPT_CACHE, '-ngl', '0', ...(type === 'none' ? [] : ['--spec-type', type])];
  const size = { threads: THREADS, slots: callers, contextPerSlot: CONTEXT };
  const server = await LlamaServer.start(file, { ...size, more, libraries: 'npm' });
  const ask = async ({ prompt }: Replay, tokens: number, slot: number): Promise<number> => {
    const body = { prompt, n_predict: tokens, temperature: 0, cache_prompt: true, ignore_eos: true, id_slot: slot };
    const answer = await fetch(`http://127.0.0.1:${server.port}/completion`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    return ((await answer.json()) as { tokens_predicted: number }).tokens_predicted;
  };
  const rates: number[] = [];
  for (let at = 0; at < replays.length; at += callers) {
    const some = replays.slice(at, at + callers);
    await Promise.all(some.map((each, slot) => ask(each, 1, slot)));
    const from = performance.now();
    const tokens = await Promise.all(some.map((each, slot) => ask(each, each.reply.length, slot)));
    rates.push(tokens.reduce((sum, each) => sum + each, 0) / ((performance.now() - from) / 1000));
  }
  await server.close();
  return median(rates);
}

/** One loop, of which each run has another way to speculate: the same memory, and the same decoder. */
class SwitchedLoop {
  readonly #loop: RealLoop;
  readonly #addon: { raDecodeRun: EngineAddon['raDecodeRun'] };
  readonly #own: EngineAddon['raDecodeRun'];
  readonly #fixed: readonly AddonStepCosts[];
  #costs: AddonStepCosts | undefined;

  private constructor(loop: RealLoop, addon: EngineAddon) {
    this.#loop = loop;
    const alone = new Float64Array(DRAFT_LENGTHS.length).fill(1);
    this.#fixed = DRAFT_LENGTHS.map((_, only) => new addon.RaStepCosts(alone, only));
    this.#addon = addon;
    this.#own = addon.raDecodeRun;
    this.#addon.raDecodeRun = (...given) => {
      if (given[8]) given[8] = this.#costs ?? given[8];
      return this.#own(...given);
    };
  }

  static async load(file: string, seats: number): Promise<SwitchedLoop> {
    const size = { seats, contextPerSeat: SHORT_CONTEXT, prefillTokensPerStep: 256, threads: THREADS } as const;
    const loop = await RealLoop.load(file, { ...size, prefixReuse: 'any', speculation: 'auto' });
    return new SwitchedLoop(loop, engineAddon());
  }

  /** `way`: an index of DRAFT_LENGTHS, or a setting. */
  async timed(way: Way, replays: readonly Replay[]): Promise<Timed> {
    this.#loop.speculation = way === 'off' ? 'off' : 'auto';
    this.#costs = typeof way === 'number' ? this.#fixed[way] : undefined;
    return await timed(this.#loop, replays);
  }

  async close(): Promise<void> {
    this.#addon.raDecodeRun = this.#own;
    await this.#loop.dispose();
  }
}

/** What is left of a section's time, for the rows that it has still to make. */
class Budget {
  readonly #until = performance.now() + SECTION_MS;
  #rows: number;
  #rowUntil = 0;

  constructor(rows: number) {
    this.#rows = rows;
  }

  begin(): void {
    this.#rowUntil = performance.now() + (this.#until - performance.now()) / this.#rows;
    this.#rows -= 1;
  }

  get over(): boolean {
    return performance.now() > this.#rowUntil;
  }
}

/** For a row's text. */
function runsText(made: number, planned: number): string {
  return made < planned ? `${made} of ${planned} runs, cut by time` : `${made} runs`;
}

function randomTokens(random: RandomWords, count: number): number[] {
  return Array.from({ length: count }, () => (random.next() >>> 0) % 50_000);
}

/** Random tokens: no text repeats, and nothing can be gained. */
async function novel(): Promise<Row[]> {
  const file = await random150m();
  const random = new RandomWords(1);
  const rows: Row[] = [];
  const budget = new Budget(NOVEL.length);
  for (const [callers, count, planned] of NOVEL) {
    budget.begin();
    const loop = await SwitchedLoop.load(file, callers);
    const replays = Array.from({ length: callers }, (): Replay => ({
      prompt: randomTokens(random, 32),
      reply: randomTokens(random, count),
    }));
    // The first one's times are not those of later ones.
    for (const way of ['off', 'auto'] as const) await loop.timed(way, replays);
    const pairs: { off: Timed; auto: Timed }[] = [];
    while (pairs.length < planned && !(budget.over && pairs.length > 1)) {
      const off = pairs.length % 2 === 0 ? await loop.timed('off', replays) : undefined;
      const auto = await loop.timed('auto', replays);
      pairs.push({ off: off ?? (await loop.timed('off', replays)), auto });
    }
    await loop.close();
    const ratios = [0, 1].map((order) =>
      median(pairs.filter((_, i) => i % 2 === order).map(({ off, auto }) => auto.perSecond / off.perSecond)),
    );
    rows.push({
      section: 'novel',
      callers,
      what: `random replies of ${count} tokens; ${runsText(pairs.length, planned)}`,
      'tokens/s, off': median(pairs.map((pair) => pair.off.perSecond)),
      'tokens/s, auto': median(pairs.map((pair) => pair.auto.perSecond)),
      ratio: Math.sqrt(ratios.reduce((product, each) => product * each, 1)),
      'tokens a decode': median(pairs.map((pair) => pair.auto.tokensPerDecode)),
    });
  }
  return rows;
}

/** Replies of which this share of tokens is as in the prompt, with each number of drafts and with the chosen ones. */
async function chosen(): Promise<Row[]> {
  const file = await random150m();
  const rows: Row[] = [];
  const budget = new Budget(CHOSEN.length * SHARES.length);
  for (const [callers, count, planned] of CHOSEN) {
    const loop = await SwitchedLoop.load(file, callers);
    const fits = (drafts: number): boolean => callers <= 2 * Math.floor(MOST_LOGITS / VOCABULARY / (drafts + 1));
    const lengths = DRAFT_LENGTHS.filter(fits);
    for (const share of SHARES) {
      budget.begin();
      const random = new RandomWords(Math.round(100 * share));
      const texts = (): Replay[] =>
        Array.from({ length: callers }, (): Replay => {
          const prompt = randomTokens(random, count);
          const [other, kept] = [
            randomTokens(random, count),
            prompt.map(() => (random.next() >>> 0) / 2 ** 32 < share),
          ];
          return { prompt, reply: prompt.map((token, i) => (kept[i] ? token : (other[i] ?? 0))) };
        });
      const parts = texts().map(({ prompt, reply }): Replay => ({ prompt, reply: reply.slice(0, count / 4) }));
      const trials: number[] = [];
      for (const way of lengths.keys())
        if (way < 2 || !budget.over) trials.push((await loop.timed(way, parts)).perSecond);
      const least = HOPEFUL * Math.max(...trials);
      const ways: readonly Way[] = [...[...trials.keys()].filter((way) => (trials[way] ?? 0) >= least), 'auto'];
      // It learns what steps take here.
      await loop.timed('auto', parts);
      const rounds: Map<Way, Timed>[] = [];
      while (rounds.length < planned && !(budget.over && rounds.length > 0)) {
        // Other texts each time: on one text a number of drafts may be the best by luck.
        const replays = texts();
        const round = new Map<Way, Timed>();
        for (const way of rounds.length % 2 === 0 ? ways : ways.toReversed())
          round.set(way, await loop.timed(way, replays));
        rounds.push(round);
      }
      // Of all rounds' replies: what they took, one after another.
      const rateOf = (way: Way): number =>
        ways.includes(way)
          ? rounds.length / rounds.reduce((sum, round) => sum + 1 / (round.get(way) ?? NOTHING).perSecond, 0)
          : (trials[Number(way)] ?? NaN);
      const runs = runsText(rounds.length, planned);
      const drafting = lengths.slice(1, trials.length);
      rows.push({
        section: 'chosen',
        callers,
        what: `replies of ${count} tokens, ${Math.round(100 * share)} % as in the prompt; ${runs}`,
        'tokens/s, off': rateOf(0),
        'tokens/s, auto': rateOf('auto'),
        ratio: rateOf('auto') / rateOf(0),
        'tokens a decode': median(rounds.map((round) => (round.get('auto') ?? NOTHING).tokensPerDecode)),
        ...Object.fromEntries(drafting.map((drafts, i) => [`tokens/s, ${drafts} drafts`, rateOf(i + 1)])),
        'of the best number': rateOf('auto') / Math.max(...ways.filter((way) => way !== 'auto').map(rateOf)),
      });
    }
    await loop.close();
  }
  return rows;
}

/** Replies in a JSON schema that quote their prompts. */
async function held(): Promise<Row[]> {
  const file = await random150m();
  const llama = await cpuLlama(1);
  const model = await llama.loadModel({ modelPath: file, vocabOnly: true });
  const tokenize = (text: string): number[] => [...model.tokenize(text)].map(Number);
  const replays = knownEdits(Math.max(...CALLERS)).map((edit): Replay => {
    return { prompt: tokenize(`${edit.before}\n\nQuote some lines.\n\n`), reply: tokenize(quotesOf(edit)) };
  });
  await llama.dispose();
  const made = schemaGrammar(QUOTES);
  const grammar = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (grammar.kind !== 'ok') throw new Error(grammar.why);
  const rows: Row[] = [];
  for (const callers of CALLERS)
    for (const [way, stacks] of Object.entries(STACKS)) {
      const format = { markers: [], grammar: { gbnf: grammar.gbnf, stacks } };
      const asked = replays.slice(0, callers);
      const tokens = Math.min(...asked.map(({ reply }) => reply.length));
      const some = asked.map(({ prompt, reply }): Replay => ({ prompt, reply: reply.slice(0, tokens), format }));
      const loops = new Loops();
      const [off, auto] = [await loops.make(file, callers, 'off'), await loops.make(file, callers, 'auto')];
      for (const each of [off, auto, auto]) await timed(each, some);
      const pairs: { off: Timed; auto: Timed }[] = [];
      for (let run = 0; run < HELD_RUNS; run += 1) {
        const first = run % 2 === 0 ? await timed(off, some) : undefined;
        pairs.push({ auto: await timed(auto, some), off: first ?? (await timed(off, some)) });
      }
      await loops.close();
      rows.push({
        section: 'held',
        callers,
        what: `${tokens} tokens of JSON that quotes its prompt, held ${way}`,
        'tokens/s, off': median(pairs.map((pair) => pair.off.perSecond)),
        'tokens/s, auto': median(pairs.map((pair) => pair.auto.perSecond)),
        ratio: median(pairs.map((pair) => pair.auto.perSecond / pair.off.perSecond)),
        'drafts that came': median(pairs.map((pair) => pair.auto.accepted / pair.auto.drafted)),
        'tokens a decode': median(pairs.map((pair) => pair.auto.tokensPerDecode)),
      });
    }
  return rows;
}

// Our addon can be loaded once llama.cpp's is.
await cpuLlama(1);

const SECTIONS = { edits, beside, novel, chosen, held };
const only = process.argv[2];
const kept = only === undefined || only === 'all' ? [] : await keptRows(NAME);
const rows: Row[] = [];
for (const [section, make] of Object.entries(SECTIONS)) {
  const asked = only === undefined || only === 'all' || only === section;
  rows.push(...(asked ? await make() : kept.filter((row) => row['section'] === section)));
}

await keep(NAME, {
  title: 'Speculation by prompt lookup',
  about: [
    `Tokens a second of replies whose prompts were evaluated before; medians of ${RUNS} runs, 150 million random weights in Q8_0 with GPT-2’s vocabulary, ${THREADS} compute thread(s). \`off\` and \`auto\` are the setting \`speculation\`. A section may have been measured by itself, at another hour. In all but \`beside\` the number of drafts follows measured times also for one caller, as for a request without a seed.`,
    'edits: edits of TypeScript files from this repository’s history, the same ones in each run; the prompt is the old file and the subject of the commit, the reply is the new file. Random weights say no such text, so each pick is replaced by the text’s next token after it was made: costs are those of a model, and which drafts come is the real text’s. All replies are cut to the length of the shortest, so that without speculation all end in the same step, as those of llama-batched-bench do, which decodes as many tokens after prompts of the same mean length, and picks nothing.',
    'beside: the same edits for llama-server, which cannot be made to say a text. A model of the same shape always says the next id, so texts are written with ids that count upwards: lines that the old file has too have the same ids there, all others have ids of their own. Greedy; llama-server over HTTP with whole replies, on the same libraries of llama.cpp; ours the engine process; none, ngram-simple and ngram-mod are its `--spec-type`, otherwise as they come.',
    'novel: random tokens, which never repeat, on one loop whose setting changes between two runs, so that both have the same memory; the ratio is the geometric mean of the medians of pairs that begin with `off` and of those that begin with `auto`. chosen: replies with a share of tokens as in the prompt and others in place of the rest, with each fixed number of drafts that a step may have, one of several callers being the same for all, and as it is chosen, one after another on one loop, every other run in the opposite order. Each run has other texts, since on one short text a number of drafts may be the best by luck; a rate is that of all runs’ replies one after another. A number of drafts with less than half of the best rate in a first run of a quarter of the tokens has that run’s figure. The last column is the chosen numbers’ rate over the best fixed number’s. Both sections have twelve minutes each, and each of their rows its share of what is left of them: one that took longer has fewer runs, and says so, and numbers of drafts that were not tried for that have no figure.',
    `held: replies in a JSON schema, a list of lines of the old files that are their prompts, each with a number, said as in edits. The grammar is checked within the step, or by masks of a thread, as of schemas with many alternatives; the masks of its places are made before. Medians of ${HELD_RUNS} pairs, of which every other one begins with \`off\`.`,
  ],
  rows,
});
process.exit(0);
