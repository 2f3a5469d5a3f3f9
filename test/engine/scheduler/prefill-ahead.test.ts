/** What an idle engine evaluates ahead, over a decoder without a model that cannot truncate. */
import t from 'tap';
import type { GenerateJob } from '../../../engine/protocol/jobs.js';
import type { ModelTokens } from '../../../engine/scheduler/job.js';
import { alphabet, Bench, END, job, model, type BenchOptions } from '../../support/step-bench.js';

const BEGIN = 1;
/** One token for `rs`, which a reply never samples. */
const RS = 200;
const REPLY = 10;
/** More turns of the event loop than what is evaluated ahead takes here. */
const TURNS = 100;

const codes = (text: string): number[] => [...Buffer.from(text)];
const turn = (text: string): number[] => [BEGIN, ...codes(text), END, ...codes('\n')];
const HEADER = [BEGIN, ...codes('m:')];
/** Long enough for its state to be saved. */
const QUESTION = 'what is the sea, and what is the sky?';
const ASKED = [...turn(QUESTION), ...HEADER];
/** Of the alphabet: what follows the prompt by its length. */
const SAID = codes('qrstuvwxyz');

const tokens: ModelTokens = {
  ...model,
  control: (token) => (token === BEGIN ? '<begin>' : token === END ? '<end>' : undefined),
  tokenize: (text) => Uint32Array.from(codes(text)),
};
/** A letter counts as a control token too. */
const withX = (token: number): string | undefined => (token === codes('x')[0] ? '<x>' : tokens.control(token));
const OPTIONS = {
  truncatable: false,
  saves: true,
  checkpointBytes: 10_000,
  contextPerSeat: 128,
  prefillAhead: true,
  tokens,
} as const;

const THOUGHT = { open: true, starts: [], ends: ['w'], implicitEnds: [], headers: [] } as const;

const ask = (prompt: readonly number[], more: Partial<GenerateJob> = {}): GenerateJob =>
  job(Uint32Array.from(prompt), { maxTokens: REPLY, ...more });

const bench = (more: BenchOptions = {}): Bench => new Bench(1, undefined, { ...OPTIONS, ...more });

/** Runs a job, and then lets the event loop turn until all that is evaluated ahead has been: no time passes in these tests. */
async function ran(on: Bench, id: number, asked: GenerateJob): Promise<void> {
  await on.run(id, () => on.loop.generate(id, asked));
  await turns();
}

async function turns(): Promise<void> {
  for (let i = 0; i < TURNS; i += 1) await new Promise(setImmediate);
}

t.test('a reply is evaluated as the next prompt contains it, and that one starts after it', async (t) => {
  const on = bench();
  await ran(on, 1, ask(ASKED));
  t.equal(on.text(1), Buffer.from(SAID).toString());
  const next = [...ASKED, ...SAID, END, ...codes('\n')];
  t.same(on.decoder.held.get(0), [...next, BEGIN], 'up to the token that begins the next turn');
  await ran(on, 2, ask([...next, ...turn('and the sky'), ...HEADER]));
  t.equal(on.cached(2), next.length);
  t.same(on.decoder.violations, []);
});

t.test('a reply that ended itself is continued without its end twice', async (t) => {
  const length = ASKED.length + 4;
  const on = new Bench(1, (held) => (held.length < length ? alphabet(held) : END), OPTIONS);
  await ran(on, 1, ask(ASKED));
  t.same(on.decoder.held.get(0), [...ASKED, ...SAID.slice(0, 4), END, ...codes('\n'), BEGIN]);
});

t.test('the reply’s text is tokenized again, with the header before it', async (t) => {
  const tokenize = (text: string): Uint32Array =>
    Uint32Array.from(codes(text.replace('rs', '\u0002')).map((code) => (code === 2 ? RS : code)));
  const on = bench({ tokens: { ...tokens, tokenize } });
  await ran(on, 1, ask(ASKED));
  const next = [...ASKED, ...SAID.slice(0, 1), RS, ...SAID.slice(3), END, ...codes('\n')];
  t.same(on.decoder.held.get(0), [...next, BEGIN]);
  await ran(on, 2, ask([...next, ...turn('and the sky'), ...HEADER]));
  t.equal(on.cached(2), next.length);
});

t.test('a request that arrives meanwhile goes first, with what was evaluated so far', async (t) => {
  const on = bench();
  const next = [...ASKED, ...SAID, END, ...codes('\n'), ...turn('and the sky'), ...HEADER];
  let steps = Infinity;
  on.decoder.onStep = (step) => {
    if (on.of(1).some(({ kind }) => kind === 'done') && steps === Infinity) {
      steps = step;
      on.loop.generate(2, ask(next));
    }
  };
  await ran(on, 1, ask(ASKED));
  await on.ends(2);
  const sizes = on.decoder.steps.slice(steps - 1, steps + 1).map((parts) => parts.map(({ tokens }) => tokens.length));
  t.same(sizes, [[8], [8]], 'after the chunk that was being computed');
  t.equal(on.cached(2), ASKED.length - HEADER.length, 'whose state is not saved, as no turn ends there');
  t.same(on.decoder.violations, []);
});

t.test('what is too old is dropped after it, not in its place', async (t) => {
  const on = bench();
  let dropped: Promise<void> | undefined;
  on.decoder.onStep = () => {
    if (on.of(1).some(({ kind }) => kind === 'done')) dropped ??= on.loop.tidy();
  };
  await ran(on, 1, ask(ASKED));
  t.ok(dropped, 'during its first chunk');
  await dropped;
  t.same(on.decoder.held.get(0), [...ASKED, ...SAID, END, ...codes('\n'), BEGIN]);
});

t.test('it counts as no use of its sequence: the conversation used least recently is overwritten first', async (t) => {
  const on = new Bench(2, undefined, OPTIONS);
  const sequences: (number | undefined)[] = [];
  for (const [id, first] of ['x', 'y', 'z'].entries()) {
    const { length } = on.decoder.steps;
    await on.run(id, () => on.loop.generate(id, ask([...codes(first), ...ASKED])));
    sequences.push(on.decoder.steps[length]?.[0]?.sequence);
    if (first === 'y') await turns();
  }
  t.same([...(on.decoder.held.get(sequences[1] ?? NaN) ?? [])].slice(-2), [...codes('\n'), BEGIN], 'it was done');
  t.not(sequences[1], sequences[0]);
  t.equal(sequences[2], sequences[0]);
});

t.test('a decode that fails meanwhile costs the state alone', async (t) => {
  const on = bench();
  await on.run(1, () => on.loop.generate(1, ask(ASKED)));
  on.decoder.failing.add(0);
  await turns();
  t.equal(on.decoder.failing.size, 0);
  await on.run(2, () => on.loop.generate(2, ask(ASKED)));
  t.equal(on.cached(2), 0);
  t.equal(on.text(2), Buffer.from(SAID).toString());
  t.same(on.decoder.violations, []);
});

for (const [what, asked, more] of [
  ['it is off', ask(ASKED), { prefillAhead: false }],
  ['nothing is reused', ask(ASKED), { prefixReuse: 'off' }],
  ['every state is reused', ask(ASKED), { prefixReuse: 'any' }],
  ['the state can be truncated', ask(ASKED), { truncatable: true, saves: false }],
  ['a stop string cut the reply', ask(ASKED, { stops: ['xyz'] }), {}],
  ['the reply has a thought', ask(ASKED, { format: { markers: [], thought: THOUGHT } }), {}],
  ['a control token is in the reply', ask(ASKED), { tokens: { ...tokens, control: withX } }],
  ['there are several replies', ask(ASKED, { n: 2 }), {}],
  ['the prompt does not show how a turn ends', ask([BEGIN, ...codes(QUESTION)]), {}],
  ['a run of letters is too long to be tokenized', ask(ASKED, { maxTokens: 1100 }), { contextPerSeat: 2000 }],
  ['no checkpoint is kept', ask(ASKED), { checkpointBytes: 0 }],
  ['the reply is too brief for a state after it', ask(ASKED, { maxTokens: 1 }), { prefillTokensPerStep: 64 }],
  ['the prompt has no room for it', ask(ASKED), { contextPerSeat: ASKED.length + REPLY + 2 }],
] as const satisfies readonly (readonly [string, GenerateJob, BenchOptions])[]) {
  t.test(`nothing is evaluated ahead where ${what}`, async (t) => {
    const on = bench(more);
    await on.run(1, () => on.loop.generate(1, asked));
    const { length } = on.decoder.steps;
    await turns();
    t.equal(on.decoder.steps.length, length);
  });
}

t.test('nothing is evaluated ahead of an account that was closed, and nothing after the loop is', async (t) => {
  const on = bench();
  await on.run(1, () => on.loop.generate(1, ask(ASKED, { scope: 'account' })));
  const { length } = on.decoder.steps;
  await on.loop.forget('account');
  await turns();
  t.equal(on.decoder.steps.length, length);
  await on.run(2, () => on.loop.generate(2, ask(ASKED)));
  const after = on.decoder.steps.length;
  await on.loop.close();
  await turns();
  t.equal(on.decoder.steps.length, after);
});
