/**
 * Random jobs, cancels, faults and failed copies, compared with expected outputs that do not depend on what the loop
 * reuses, copies or truncates: each reply is a function of its prompt and seed only, each answer of its input and tail.
 * Wrong tokens in a sequence result in another text.
 */
import fc from 'fast-check';
import { runChat, runDecision } from '../../support/generate-job.js';
import t from 'tap';
import type { Output } from '../../../engine/protocol/jobs.js';
import type { JobHandle } from '../../../sidecar/engine-client/engine.js';
import { Mux } from '../../../sidecar/engine-client/mux.js';
import { RecordingReceiver } from '../../support/recording-receiver.js';
import { Bench, END, job, LETTER_A, questions, StepTime } from '../../support/step-bench.js';
import { rounds } from '../../support/long-form.js';

/** Long enough for prompts that are worth a copy. */
const CONTEXT = 200;

/** A reply’s next token: any letter, and sometimes the end. */
function next(held: readonly number[], { seed }: { readonly seed: number }): number {
  const hash = fold(held, seed);
  return hash % 11 === 0 ? END : LETTER_A + (hash % 26);
}

const score = (held: readonly number[]): number => 1 + (fold(held, 3) % 1000) / 1000;

/** A question’s answer; any function will do that differs between questions. */
const temperatureOf = (tail: readonly number[]): number => 1 + ((tail.at(-1) ?? 0) % 3);

function fold(tokens: readonly number[], start: number): number {
  return tokens.reduce((hash, token) => (Math.imul(hash ^ token, 0x01000193) + 7) >>> 0, start);
}

interface Sent {
  readonly at: number;
  readonly kind: 'generate' | 'score';
  readonly base: number;
  readonly shared: number;
  readonly own: readonly number[];
  readonly items: number;
  readonly seats: number;
  readonly maxTokens: number;
  readonly isolate: boolean;
}

interface Fault {
  readonly at: number;
  readonly kind: 'fault' | 'bad-copy';
  readonly sequence: number;
}

type Act =
  | Sent
  | { readonly at: number; readonly kind: 'cancel'; readonly which: number; readonly inCopy: boolean }
  | { readonly at: number; readonly kind: 'reduceSeats'; readonly which: number }
  | Fault;

/** Rounds of the event loop between two operations. */
const at = fc.nat(12);
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      at,
      kind: fc.constantFrom('generate' as const, 'score' as const),
      // Few prefixes, so that prompts meet the states of others.
      base: fc.nat(2),
      shared: fc.oneof(fc.nat(30), fc.integer({ min: 90, max: 150 })),
      own: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 12 }),
      items: fc.integer({ min: 1, max: 5 }),
      seats: fc.integer({ min: 1, max: 5 }),
      maxTokens: fc.integer({ min: 1, max: 12 }),
      isolate: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ at, kind: fc.constant('cancel' as const), which: fc.nat(9), inCopy: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ at, kind: fc.constant('reduceSeats' as const), which: fc.nat(9) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ at, kind: fc.constantFrom('fault' as const, 'bad-copy' as const), sequence: fc.nat(4) }),
  },
);

const setup = fc.record({
  seats: fc.integer({ min: 1, max: 5 }),
  prefillTokensPerStep: fc.integer({ min: 1, max: 40 }),
  /** A CPU’s, or a GPU’s with this target. */
  planner: fc.constantFrom<{ stepMs?: number }>({}, { stepMs: 1 }, { stepMs: 12 }, { stepMs: 100 }),
  prefixReuse: fc.constantFrom('auto' as const, 'any' as const, 'off' as const),
  truncatable: fc.boolean(),
  copyable: fc.boolean(),
  runTells: fc.nat(3),
  /** Milliseconds that successive decodes take. */
  times: fc.array(fc.nat(20), { minLength: 1, maxLength: 7 }),
});

const prefix = (base: number, length: number): number[] => Array.from({ length }, (_, i) => 1 + ((i * (base + 3)) % 5));

/** What a job’s receiver must get, in any order except within an item. */
interface Expected {
  readonly receiver: RecordingReceiver;
  readonly texts: readonly string[];
  readonly answers: readonly string[];
  readonly seats: number;
  readonly handle: JobHandle;
  cancelledAfter: number | undefined;
}

function replyOf(prompt: readonly number[], seed: number, maxTokens: number): string {
  const held = [...prompt];
  let text = '';
  for (let made = 0; made < maxTokens; made += 1) {
    const token = next(held, { seed });
    if (token === END) break;
    text += String.fromCharCode(token);
    held.push(token);
  }
  return text;
}

async function play(acts: readonly Act[], options: Setup): Promise<void> {
  const clock = new StepTime();
  const bench = new Bench(options.seats, next, {
    ...options,
    ...options.planner,
    contextPerSeat: CONTEXT,
    score,
    clock,
  });
  const { decoder, loop } = bench;
  decoder.onStep = (step) => {
    clock.ms += options.times[step % options.times.length] ?? 0;
  };
  const cancelled = new Set<number>();
  const mux = new Mux(
    (message) => {
      if (message.kind === 'generate') loop.generate(message.id, message.job);
      else if (message.kind === 'score') loop.score(message.id, message.job);
      else if (message.kind === 'cancel') {
        loop.cancel(message.id);
        cancelled.add(message.id);
      } else if (message.kind === 'reduceSeats') loop.reduceSeats(message.id);
    },
    (error) => {
      throw error;
    },
  );
  const broken: string[] = [];
  bench.onOutputs = (outputs: readonly Output[]): void => {
    broken.push(...[mux.apply(outputs) ?? []].flat());
    // The mux drops such outputs, but the engine should not send them.
    if (outputs.some(({ id }) => cancelled.has(id))) broken.push('output of a cancelled job');
  };
  const jobs: Expected[] = [];
  const cancel = (which: number): void => {
    const chosen = jobs[which % jobs.length];
    if (!chosen || chosen.cancelledAfter !== undefined) return;
    chosen.handle.cancel();
    chosen.cancelledAfter = chosen.receiver.calls.length;
  };
  const send = ({ kind, base, shared, own, items, seats, maxTokens, isolate }: Sent): void => {
    const receiver = new RecordingReceiver();
    const input = prefix(base, shared);
    if (kind === 'generate') {
      const prompt = [...input, ...own];
      const request = job(Uint32Array.from(prompt), { n: items, seats: Math.min(seats, items), maxTokens, seed: 5 });
      const texts = Array.from({ length: items }, (_, i) => replyOf(prompt, 5 + i, maxTokens));
      const handle = runChat(mux, request, receiver);
      jobs.push({ receiver, texts, answers: [], seats: request.seats, handle, cancelledAfter: undefined });
      return;
    }
    const tails = Array.from({ length: items }, (_, i) => [...own.slice(i), 4 + (i % 3)]);
    const request = {
      ...questions(Uint32Array.from(input), [], { isolate, seats: isolate ? 1 : Math.min(seats, items) }),
      questions: tails.map((tail) => ({
        tail: Uint32Array.from(tail),
        labels: Uint32Array.of(8, 9),
        temperature: temperatureOf(tail),
      })),
    };
    const answers = tails.map((tail, i) => {
      const mass = score([...input, ...tail]);
      return `${i} ${(1 / (1 + Math.exp(-mass / temperatureOf(tail)))).toFixed(9)}`;
    });
    const handle = runDecision(mux, request, receiver);
    jobs.push({ receiver, texts: [], answers, seats: request.seats, handle, cancelledAfter: undefined });
  };

  let faults = 0;
  for (const each of acts) {
    for (let i = 0; i < each.at; i += 1) await new Promise(setImmediate);
    if ('sequence' in each) {
      faults += 1;
      (each.kind === 'fault' ? decoder.failing : decoder.failingCopies).add(each.sequence);
    } else if ('items' in each) send(each);
    else if (each.kind === 'reduceSeats') jobs[each.which % jobs.length]?.handle.reduceSeats();
    else if (each.inCopy) decoder.onCopy = (): void => cancel(each.which);
    else cancel(each.which);
  }
  await settled(bench);
  decoder.failing.clear();
  decoder.onCopy = (): void => undefined;
  // Whatever happened before, every sequence can be used and is correct.
  for (let i = 0; i < options.seats; i += 1) {
    send({
      at: 0,
      kind: 'generate',
      base: i % 3,
      shared: 120,
      own: [1],
      items: 1,
      seats: 1,
      maxTokens: 6,
      isolate: false,
    });
  }
  await settled(bench);

  const problems = [...broken, ...decoder.violations];
  const most = options.prefillTokensPerStep + options.seats;
  for (const parts of decoder.steps) {
    if (parts.reduce((sum, { tokens }) => sum + tokens.length, 0) > most) problems.push('a batch too large');
  }
  if (loop.live > 0) problems.push('a job is left');
  if (decoder.samplers.some(({ disposed }) => !disposed)) problems.push('a sampler is left');
  for (const [i, expected] of jobs.entries()) {
    const late = i >= jobs.length - options.seats;
    problems.push(...wrongs(expected, faults > 0 && !late).map((wrong) => `job ${i}: ${wrong}`));
  }
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

interface Setup {
  readonly seats: number;
  readonly prefillTokensPerStep: number;
  readonly planner: { readonly stepMs?: number };
  readonly prefixReuse: 'auto' | 'any' | 'off';
  readonly truncatable: boolean;
  readonly copyable: boolean;
  readonly runTells: number;
  readonly times: readonly number[];
}

/** No job can take longer: each round of the loop produces a token. */
const MAX_ROUNDS = 20_000;

async function settled({ loop }: Bench): Promise<void> {
  for (let i = 0; i < MAX_ROUNDS && loop.live > 0; i += 1) await new Promise(setImmediate);
}

function wrongs(
  { receiver: { calls, fault }, texts, answers, seats, cancelledAfter }: Expected,
  mayFail: boolean,
): string[] {
  if (cancelledAfter !== undefined) return calls.length > cancelledAfter ? ['output after its cancel'] : [];
  if (fault) return mayFail ? [] : ['failed without a fault'];
  if (calls.at(-1) !== 'done') return ['never ended'];
  const reported = texts.map((_, choice) =>
    calls.flatMap((call) => (call.startsWith(`piece ${choice} `) ? [call.split(' ')[2]] : [])).join(''),
  );
  const found = calls.flatMap((call) => {
    const [, question, pair] = /^answer (\d+) ([\d.e-]+)\//.exec(call) ?? [];
    return question === undefined ? [] : [`${question} ${Number(pair).toFixed(9)}`];
  });
  const freed = calls.filter((call) => call === 'seatFreed').length;
  return [
    ...texts.flatMap((text, i) => (reported[i] === text ? [] : [`choice ${i} is ${reported[i]}, not ${text}`])),
    ...(found.toSorted().join() === answers.toSorted().join()
      ? []
      : [`answers ${found.join()}, not ${answers.join()}`]),
    ...(freed < seats ? [] : ['gave its last seat back']),
  ];
}

t.test('whatever happens, results are those of the job alone and nothing is left', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 1, maxLength: 14 }), setup, (acts, options) => play(acts, options)),
    { numRuns: rounds({ short: 35, long: 400 }) },
  );
});
