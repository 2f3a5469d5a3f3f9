import t from 'tap';
import type { GenerateJob, Output } from '../../../engine/protocol/jobs.js';
import { alphabet, Bench, END, job, LETTER_A, model, questions, StepTime } from '../../support/step-bench.js';

t.test('one reply: started, pieces, finished by length, done', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, job(1));
  await bench.ends(1);
  t.equal(bench.text(1), 'abcd');
  t.same(bench.of(1)[0], { id: 1, kind: 'started', cachedTokens: 0 });
  t.same(bench.of(1).slice(-2), [
    { id: 1, kind: 'finished', choice: 0, reason: 'length', completionTokens: 4, reasoningTokens: 0 },
    { id: 1, kind: 'done' },
  ]);
  t.equal(bench.loop.live, 0);
  t.ok(bench.decoder.samplers.every((sampler) => sampler.disposed));
});

t.test('an end token and a stop string end the reply with their reasons', async (t) => {
  const ends = new Bench(1, (held) => (held.length === 3 ? END : alphabet(held)));
  ends.loop.generate(1, job(1, { maxTokens: 9 }));
  await ends.ends(1);
  t.match(ends.of(1).at(-2), { kind: 'finished', reason: 'stop', matchedStop: END, completionTokens: 3 });
  t.equal(ends.text(1), 'ab');

  const stops = new Bench(1);
  stops.loop.generate(1, job(1, { maxTokens: 9, stops: ['cd', 'zz'] }));
  await stops.ends(1);
  t.match(stops.of(1).at(-2), { kind: 'finished', reason: 'stop', matchedStop: 'cd', completionTokens: 4 });
  t.equal(stops.text(1), 'ab');
});

t.test('a thought is sent on its own channel and counted, its marks included', async (t) => {
  const [THINK, ENOUGH] = [1000, 1001];
  const named = { ...model, control: (token: number) => ({ [THINK]: '<t>', [ENOUGH]: '</t>' })[token] };
  const said = [THINK, 97, 98, ENOUGH, 99, 46];
  const thought = { open: false, starts: ['<t>'], ends: ['</t>'], implicitEnds: [], headers: [] };
  const run = async (more: Partial<GenerateJob>): Promise<Output[]> => {
    const bench = new Bench(1, (held) => said[held.length - 1] ?? END, { tokens: named });
    bench.loop.generate(1, job(1, { maxTokens: 9, ...more }));
    await bench.ends(1);
    return bench.of(1).filter(({ kind }) => kind !== 'started' && kind !== 'done');
  };
  const markers = ['<t>', '</t>'];
  const piece = { id: 1, kind: 'piece', choice: 0 };
  const ab = [
    { ...piece, channel: 'reasoning', text: 'a', tokens: 2 },
    { ...piece, channel: 'reasoning', text: 'b', tokens: 3 },
  ];
  const finished = { id: 1, kind: 'finished', choice: 0 };
  t.same(await run({ format: { thought, markers } }), [
    ...ab,
    { ...piece, channel: 'content', text: 'c', tokens: 5 },
    { ...piece, channel: 'content', text: '.', tokens: 6 },
    { ...finished, reason: 'stop', matchedStop: END, completionTokens: 7, reasoningTokens: 4 },
  ]);
  t.same(
    await run({ format: { thought, markers }, maxTokens: 3 }),
    [...ab, { ...finished, reason: 'length', completionTokens: 3, reasoningTokens: 3 }],
    'cut off within its thought it has no content',
  );
  t.match(
    await run({ format: { thought, markers }, maxTokens: 1 }),
    [{ ...finished, completionTokens: 1, reasoningTokens: 1 }],
    'cut off at its first mark it is a thought too',
  );
  t.match(
    (await run({ format: { thought, markers: [] } })).at(-1),
    { completionTokens: 7, reasoningTokens: 0 },
    'control tokens that the format does not name have no text',
  );
});

t.test('n replies run in turn after one prefill, each with its own seed', async (t) => {
  const bench = new Bench(1, (held, sampling) => LETTER_A + sampling.seed + held.length - 12);
  bench.loop.generate(1, job(12, { n: 3, maxTokens: 2, seed: 0 }));
  await bench.ends(1);
  t.same(
    [0, 1, 2].map((choice) => bench.text(1, choice)),
    ['ab', 'bc', 'cd'],
  );
  const prompts = bench.decoder.steps.flat().filter((part) => part.tokens.includes(1));
  t.same(
    prompts.map((part) => part.tokens.length),
    [8, 4, 1, 1],
    'the prompt once, then its last token per reply',
  );
  t.same(
    bench.decoder.samplers.map((sampler) => sampler.sampling.seed),
    [0, 1, 2],
  );
});

t.test('all live sequences share each step, in order, on contiguous ids', async (t) => {
  const bench = new Bench(4);
  for (let id = 1; id <= 4; id++) bench.loop.generate(id, job(1));
  await Promise.all([1, 2, 3, 4].map((id) => bench.ends(id)));
  t.same(
    bench.decoder.steps.map((parts) => parts.map((part) => part.sequence)),
    new Array(4).fill([0, 1, 2, 3]),
  );
});

t.test('a long prompt enters in chunks beside running replies', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, job(1, { maxTokens: 12 }));
  bench.loop.generate(2, job(30, { maxTokens: 2 }));
  await Promise.all([bench.ends(1), bench.ends(2)]);
  const chunks = bench.decoder.steps.flat().filter((part) => part.sequence === 1 && part.tokens.includes(1));
  t.same(
    chunks.map((part) => [part.kind, part.tokens.length]),
    // The first step includes the other’s prompt; chunks end where they always do.
    [
      ['prefill', 7],
      ['prefill', 1],
      ['prefill', 8],
      ['prefill', 8],
      ['sample', 6],
    ],
  );
  const kinds = bench.decoder.steps.map((parts) => (parts.length === 1 && parts[0]?.kind === 'prefill' ? 'chunk' : ''));
  t.ok(!kinds.join(' ').includes('chunk chunk'), 'the reply had a token between any two chunks');
  t.ok(bench.decoder.steps.every((parts) => parts.reduce((sum, part) => sum + part.tokens.length, 0) <= 8 + 2));
});

t.test('the results of a step are sent while the next one computes', async (t) => {
  const bench = new Bench(1);
  const sent: number[] = [];
  const step = bench.decoder.step.bind(bench.decoder);
  bench.decoder.step = async function* (parts) {
    const before = bench.text(1).length;
    const results = (await step(parts).next()).value;
    sent.push(before, bench.text(1).length);
    return results;
  };
  bench.loop.generate(1, job(1, { maxTokens: 4 }));
  await bench.ends(1);
  t.same(sent, [0, 0, 0, 1, 1, 2, 2, 3]);
});

t.test('quick steps share a message; first tokens and ends are sent at once', async (t) => {
  const messages = async (sendMs: number): Promise<string[]> => {
    const clock = new StepTime();
    const bench = new Bench(1, undefined, { sendMs, clock });
    bench.decoder.onStep = () => {
      clock.ms += 1;
    };
    const sent: string[] = [];
    bench.onOutputs = (outputs) => sent.push(outputs.map(({ kind }) => kind.slice(0, 1)).join(''));
    bench.loop.generate(1, job(1, { maxTokens: 8 }));
    await bench.ends(1);
    return sent;
  };
  t.same(await messages(0), ['s', 'p', 'p', 'p', 'p', 'p', 'p', 'p', 'pfd']);
  t.same(await messages(3), ['s', 'p', 'p', 'pfd'], 'as one piece each; what has waited is sent with the end');
});

t.test('replies continue in a run, whose results are reported meanwhile', async (t) => {
  const bench = new Bench(2, undefined, { runTells: 2, prefixReuse: 'any' });
  const whileRunning: number[] = [];
  bench.onOutputs = () => whileRunning.push(bench.text(1).length);
  bench.loop.generate(1, job(1, { maxTokens: 9 }));
  bench.loop.generate(2, job(1, { maxTokens: 7, seed: 8 }));
  await Promise.all([bench.ends(1), bench.ends(2)]);
  t.same([bench.text(1), bench.text(2)], ['abcdefghi', 'abcdefg']);
  t.equal(bench.decoder.runs, 2, 'to the end of the shorter one, and then on');
  t.equal(bench.loop.steps, 9);
  t.same(
    bench.decoder.steps.map((parts) => parts.length),
    [2, 2, 2, 2, 2, 2, 2, 1, 1],
  );
  t.same(whileRunning, [0, 1, 3, 5, 7, 9], 'letters in each message');
  t.same(bench.decoder.held.get(0)?.length, 9, 'the last token is not evaluated');
  const turn = Uint32Array.from([1, ...Buffer.from('abcdefgh'), 2]);
  bench.loop.generate(3, job(turn));
  await bench.ends(3);
  t.equal(bench.cached(3), 9, 'every decoded token is recorded');
});

t.test('any call from outside stops a run', async (t) => {
  const acts: Readonly<Record<string, (bench: Bench) => unknown>> = {
    generate: ({ loop }) => loop.generate(2, job(1)),
    score: ({ loop }) => loop.score(2, questions(1, [1])),
    cancel: ({ loop }) => loop.cancel(1),
    narrow: ({ loop }) => loop.reduceSeats(1),
    close: ({ loop }) => loop.close(),
  };
  for (const [what, act] of Object.entries(acts)) {
    const bench = new Bench(2, undefined, { runTells: 50 });
    const calls: number[] = [];
    const step = bench.decoder.step.bind(bench.decoder);
    bench.decoder.step = (...given) => {
      calls.push(bench.decoder.steps.length);
      return step(...given);
    };
    bench.decoder.onStep = (count) => {
      if (count === 4) void act(bench);
    };
    bench.loop.generate(1, job(1, { maxTokens: 40 }));
    const goesOn = what !== 'cancel' && what !== 'close';
    while (bench.loop.steps < 4 || (goesOn && calls.length < 3)) await new Promise(setImmediate);
    await bench.loop.close();
    t.same(calls.slice(0, 3), goesOn ? [0, 1, 4] : [0, 1], what);
    if (!goesOn) t.equal(bench.decoder.steps.length, 4);
  }
});

t.test('replies to one prompt start together: none runs ahead before the others could start', async (t) => {
  const bench = new Bench(3, undefined, { runTells: 5 });
  bench.loop.generate(1, job(1, { n: 3, seats: 3, maxTokens: 9 }));
  await bench.ends(1);
  t.same(
    bench.decoder.steps.slice(0, 3).map((parts) => parts.length),
    [1, 3, 3],
  );
});

t.test('a job that arrives during a decode before a run does not wait for the run', async (t) => {
  const bench = new Bench(3, undefined, { runTells: 50 });
  let came = 0;
  bench.decoder.onStep = (step) => {
    if (!bench.decoder.steps.at(-1)?.some(({ kind }) => kind === 'score')) return;
    came = step;
    bench.loop.generate(3, job(1));
  };
  bench.loop.generate(1, job(1, { maxTokens: 40 }));
  bench.loop.score(2, questions(1, [1]));
  await bench.ends(3);
  await bench.loop.close();
  const after = bench.decoder.steps.slice(came).map((parts) => parts.length);
  t.same(after.slice(0, 2), [1, 2], 'the reply has one more step alone');
});

t.test('a run ends with its reply’s text, and there is none while a call may begin', async (t) => {
  const run = async (more: Partial<GenerateJob>): Promise<Bench> => {
    const bench = new Bench(1, undefined, { runTells: 3 });
    bench.loop.generate(1, job(1, { maxTokens: 30, ...more }));
    await bench.ends(1);
    return bench;
  };
  const stopped = await run({ stops: ['bc'] });
  t.match(stopped.of(1).at(-2), { kind: 'finished', reason: 'stop', matchedStop: 'bc', completionTokens: 3 });
  t.equal(stopped.text(1), 'a');
  t.equal(stopped.of(1).filter(({ kind }) => kind === 'finished').length, 1);
  t.same([stopped.decoder.runs, stopped.decoder.steps.length], [1, 5], 'the running step is finished first');
  t.equal(
    stopped.decoder.held.get(0)?.length,
    stopped.loop.report.tokens.kept,
    'tokens that were evaluated in excess are recorded',
  );

  const syntax = { mark: '<', open: '<call>', between: ' ', close: '</call>' };
  const calls = { syntax, functions: ['look'], single: false, gbnf: 'calls ::= "x"' };
  const free = await run({ format: { calls, markers: [] } });
  t.equal(free.decoder.runs, 0);
  t.equal(free.text(1).length, 30);
});

t.test('a short prompt is not delayed by a long one', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, job(50, { maxTokens: 2 }));
  bench.loop.generate(2, job(3, { maxTokens: 2 }));
  await bench.ends(2);
  // Its prompt, a chunk of the long one, its second token.
  t.ok(bench.decoder.steps.length <= 4);
  await bench.ends(1);
});

t.test('a cancel frees the sequence for the next job before the next step, while decoding or prefilling', async (t) => {
  for (const prompt of [1, 60]) {
    const bench = new Bench(1);
    bench.decoder.onStep = (step) => {
      if (step === 2) {
        bench.loop.cancel(1);
        bench.loop.generate(2, job(1, { maxTokens: 1 }));
      }
    };
    bench.loop.generate(1, job(prompt, { maxTokens: 3 }));
    await bench.ends(2);
    t.equal(bench.decoder.steps.length, 3, 'the very next step is the next job’s');
    t.equal(bench.text(2), 'a', 'the sequence has nothing of the cancelled job');
    t.ok(bench.of(1).every((output) => output.kind === 'started' || output.kind === 'piece'));
    t.equal(bench.loop.live, 0);
  }
});

t.test('a reply that is cancelled during one decode of a round is not in the next one', async (t) => {
  const bench = new Bench(2);
  let last = Infinity;
  bench.decoder.onStep = (step) => {
    const alone = bench.decoder.steps[step - 1]?.every(({ sequence }) => sequence === 0) ?? false;
    if (!alone || step < 4 || last < Infinity) return;
    last = step;
    bench.loop.cancel(2);
  };
  bench.loop.score(1, questions(20, [3, 3, 3]));
  bench.loop.generate(2, job(1, { maxTokens: 40 }));
  await bench.ends(1);
  t.ok(last < Infinity, 'it was cancelled');
  const sequences = bench.decoder.steps.map((parts) => parts.map(({ sequence }) => sequence));
  t.ok(sequences.slice(0, last).flat().includes(1), 'it ran');
  t.notOk(sequences.slice(last).flat().includes(1), 'and no more');
});

t.test('a cancelled job that still waits for a sequence never starts', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, job(1));
  bench.loop.generate(2, job(1));
  bench.loop.cancel(2);
  bench.loop.cancel(99);
  await bench.ends(1);
  t.same(bench.of(2), []);
  t.equal(bench.loop.live, 0);
});

t.test('a fault ends its own job only, and the sequence is clean for the next', async (t) => {
  const bench = new Bench(2);
  bench.loop.generate(1, job(1));
  bench.loop.generate(2, job(1));
  bench.decoder.failing.add(0);
  await Promise.all([bench.ends(1, 'failed'), bench.ends(2)]);
  t.same(bench.of(1).at(-1), { id: 1, kind: 'failed', reason: 'scripted' });
  t.equal(bench.text(2), 'abcd');
  bench.loop.generate(3, job(1));
  await bench.ends(3);
  t.equal(bench.text(3), 'abcd');
});

t.test('neither decisions nor replies of no session overwrite the sequence that is kept for one', async (t) => {
  const bench = new Bench(2, alphabet, { prefixReuse: 'any' });
  const prompt = (length: number, token: number): Uint32Array => new Uint32Array(length).fill(token);
  bench.loop.generate(1, job(prompt(20, 3), { claims: { session: 7, kept: [] } }));
  await bench.ends(1);
  const claims = { kept: [7] };
  for (const id of [2, 3, 4]) {
    if (id < 4) bench.loop.score(id, questions(prompt(20, id + 10), [1], { claims }));
    else bench.loop.generate(id, job(prompt(20, id + 10), { claims }));
    await bench.ends(id);
  }
  bench.loop.generate(5, job(prompt(24, 3), { claims: { session: 7, kept: [] } }));
  await bench.ends(5);
  t.match(bench.of(5)[0], { kind: 'started', cachedTokens: 20 });
});

t.test('a job that cannot fit fails at once', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, job(61));
  bench.loop.generate(2, job(0));
  bench.loop.score(3, questions(60, [5]));
  bench.loop.score(4, questions(5, []));
  for (const id of [1, 2, 3, 4]) t.match(bench.of(id), [{ kind: 'failed', reason: 'does not fit the context' }]);
  t.equal(bench.loop.live, 0);
});

t.test('questions share the input, are truncated to it, and decode alone', async (t) => {
  const bench = new Bench(3);
  bench.loop.generate(1, job(1, { maxTokens: 6 }));
  bench.loop.score(2, questions(10, [3, 9]));
  await Promise.all([bench.ends(1), bench.ends(2)]);
  const scoring = bench.decoder.steps.filter((parts) => parts.some((part) => part.sequence === 1));
  t.ok(
    scoring.every((parts) => parts.length === 1),
    'no other sequence in its decodes',
  );
  t.same(
    scoring.flat().map((part) => [part.kind, part.tokens.length]),
    [
      ['prefill', 8],
      ['prefill', 2],
      ['score', 3],
      ['prefill', 8],
      ['score', 1],
    ],
  );
  const answers = bench.of(2).filter((output) => output.kind === 'answer');
  t.same(
    answers.map((answer) => answer.question),
    [0, 1],
  );
  t.same(
    answers.map((answer) => answer.labelMass.toPrecision(6)),
    [(Math.exp(-13) + Math.exp(-26)).toPrecision(6), (Math.exp(-19) + Math.exp(-38)).toPrecision(6)],
  );
  t.equal(bench.text(1), 'abcdef', 'the reply continued in between');
});

t.test('two decision requests take turns', async (t) => {
  const bench = new Bench(2);
  bench.loop.score(1, questions(16, [1]));
  bench.loop.score(2, questions(16, [1]));
  await Promise.all([bench.ends(1), bench.ends(2)]);
  t.same(
    bench.decoder.steps.map((parts) => parts.map((part) => part.sequence)),
    [[0], [1], [0], [1], [0], [1]],
  );
});

t.test('close stops after the running step', async (t) => {
  const bench = new Bench(1);
  bench.loop.generate(1, job(1, { maxTokens: 60 }));
  const closed = new Promise<void>((resolve) => {
    bench.decoder.onStep = (step) => {
      if (step === 3) void bench.loop.close().then(resolve);
    };
  });
  await closed;
  t.equal(bench.decoder.steps.length, 3);
});
