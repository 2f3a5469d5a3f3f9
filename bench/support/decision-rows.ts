/** Ten questions about one input: with the input's state kept, one by one without, batched, and llama-server's way. */
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { ScoreJob, ScoreQuestion } from '../../engine/protocol/jobs.js';
import { EngineDriver } from './engine-driver.js';
import { LlamaServer } from './peers.js';
import type { Row } from './results.js';
import { median } from './stats.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const INPUT_TOKENS = 1000;
const QUESTIONS = 10;
const TAIL_TOKENS = 40;
const LABELS = 10;
const CONTEXT = 2048;
const RUNS = 3;

const labels = Uint32Array.from({ length: LABELS }, (_, i) => 15 + i);

/** Ordinary tokens of any vocabulary, others for each `seed`, so that no run reuses what another left. */
function tokens(length: number, seed: number): Uint32Array {
  return Uint32Array.from({ length }, (_, at) => 300 + ((seed * 97 + at * 7 + (at >> 3)) % 20_000));
}

interface Case {
  readonly input: Uint32Array;
  readonly questions: readonly ScoreQuestion[];
}

function newCase(run: number): Case {
  const questions = Array.from({ length: QUESTIONS }, (_, i) => ({
    tail: tokens(TAIL_TOKENS, 1000 + i),
    labels,
    temperature: 1,
  }));
  return { input: tokens(INPUT_TOKENS, run), questions };
}

interface Answered {
  readonly seconds: number;
  readonly probabilities: readonly Float64Array[];
}

async function score(engine: EngineDriver, jobs: readonly ScoreJob[]): Promise<Answered> {
  const probabilities: Float64Array[] = [];
  const from = performance.now();
  for (const job of jobs) {
    await engine.run([{ kind: 'score', job }], ({ output }) => {
      if (output.kind === 'answer') probabilities[output.question] = output.probabilities;
      return undefined;
    });
  }
  return { seconds: (performance.now() - from) / 1000, probabilities };
}

/** The same prompts, one completion of one token each, its slot keeping the common prefix (`cache_prompt`). */
async function complete(server: LlamaServer, { input, questions }: Case): Promise<number> {
  const from = performance.now();
  for (const { tail } of questions) {
    const body = {
      prompt: [...input, ...tail],
      n_predict: 1,
      n_probs: LABELS,
      temperature: 0,
      cache_prompt: true,
      id_slot: 0,
    };
    const response = await fetch(`http://127.0.0.1:${server.port}/completion`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`llama-server answered ${response.status}`);
    await response.json();
  }
  return (performance.now() - from) / 1000;
}

/** Where the questions are answered. */
export interface DecisionCase {
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
}

export interface Decided {
  readonly rows: readonly Row[];
  /** What was done and what the rows mean, a paragraph each; `model`: what ran where. */
  readonly about: (model: string) => readonly string[];
}

/** Starts our engine twice and llama-server, on one file; a row for each way to ask. */
export async function decisionRows({ file, threads, gpu }: DecisionCase): Promise<Decided> {
  // As the engine of a decision model.
  const setup = {
    contextPerSeat: CONTEXT,
    threads,
    gpu,
    prefillTokensPerStep: 0,
    flashAttention: gpu === false ? false : 'auto',
    prefixReuse: 'auto',
  } as const;
  const ours = await EngineDriver.start(file, QUESTIONS, setup);
  const bare = await EngineDriver.start(file, 1, { ...setup, prefixReuse: 'off' });
  const more = ['-ngl', gpu === false ? '0' : '99', '-fa', gpu === false ? 'off' : 'auto'];
  const server = await LlamaServer.start(file, { threads, slots: 1, contextPerSlot: CONTEXT, more });
  const runs: {
    kept: number;
    again: number;
    batched: number;
    oneByOne: number;
    server: number;
    serverAgain: number;
    spread: number;
  }[] = [];
  for (let run = 0; run <= RUNS; run++) {
    const one = newCase(run * 10 + 1);
    const job = { ...one, temperature: 1, scope: ALL_ACCOUNTS, isolate: true, seats: 1 };
    const kept = await score(ours, [job]);
    // The very same input again: another request of the same caller.
    const again = await score(ours, [job]);
    const other = newCase(run * 10 + 2);
    const batched = await score(ours, [
      { ...other, temperature: 1, scope: ALL_ACCOUNTS, isolate: false, seats: QUESTIONS },
    ]);
    const isolated = await score(ours, [{ ...other, temperature: 1, scope: ALL_ACCOUNTS, isolate: true, seats: 1 }]);
    const oneByOne = await score(
      bare,
      one.questions.map((question) => ({ ...job, questions: [question] })),
    );
    const asked = newCase(run * 10 + 3);
    const peer = await complete(server, asked);
    const peerAgain = await complete(server, asked);
    // The first one warms up.
    if (run === 0) continue;
    runs.push({
      kept: kept.seconds,
      again: again.seconds,
      batched: batched.seconds,
      oneByOne: oneByOne.seconds,
      server: peer,
      serverAgain: peerAgain,
      spread: spreadOf(batched, isolated),
    });
    process.stdout.write(`${JSON.stringify(runs.at(-1))}\n`);
  }
  await Promise.all([ours.close(), bare.close(), server.close()]);

  type Run = (typeof runs)[number];
  // Like with like: llama-server with the input unseen, or seen as in our row.
  const row = (how: string, pick: (run: Run) => number, theirs = (run: Run): number => run.server): Row => ({
    how,
    'seconds for 10 questions': median(runs.map(pick)),
    'times as fast as one by one': median(runs.map((run) => run.oneByOne / pick(run))),
    'times as fast as llama-server': median(runs.map((run) => theirs(run) / pick(run))),
  });

  const seen = (run: Run): number => run.serverAgain;
  const moved = Math.max(...runs.map(({ spread }) => spread)).toPrecision(2);
  return {
    rows: [
      row('one by one, nothing reused', (run) => run.oneByOne),
      row('ours, isolated: the input prefilled once', (run) => run.kept),
      row('ours, isolated, the input seen in an earlier request', (run) => run.again, seen),
      row('ours, batched', (run) => run.batched),
      row('llama-server, cache_prompt', (run) => run.server),
      row('llama-server, cache_prompt, the input seen in an earlier request', seen, seen),
    ],
    about: (model) => [
      `${QUESTIONS} questions of ${TAIL_TOKENS} tokens about an input of ${INPUT_TOKENS}, ${LABELS} labels each; ${model}. Our engine process over its protocol; medians of ${RUNS} runs, one of each way in turn, each run with another input.`,
      'One by one: a request for each question to an engine that reuses nothing. llama-server: the same tokens through `/completion`, one after the other on one slot, `cache_prompt` on, one token generated, `n_probs`; flash attention as in our engine. The rows with the input seen are compared with llama-server’s time for the same ten questions the second time, the others with its time the first time.',
      `Batched (\`decisions.isolate: false\`): the questions' ends share decodes. Its probabilities moved by at most ${moved} against the isolated ones of the same input; isolated answers never move.`,
    ],
  };
}

function spreadOf(a: Answered, b: Answered): number {
  return Math.max(
    ...a.probabilities.flatMap((row, q) => [...row].map((p, i) => Math.abs(p - (b.probabilities[q]?.[i] ?? NaN)))),
  );
}
