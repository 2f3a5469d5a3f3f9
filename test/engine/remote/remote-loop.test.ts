import t from 'tap';
import { RemoteHarness } from '../../support/remote-harness.js';
import { promptIds } from '../../../engine/protocol/prompt.js';
import type { GenerateJob } from '../../../engine/protocol/jobs.js';

/** It gets two frames, and no end. */
const HANGS = { hangsAfter: 2 } as const;
/** Of it, the server is not told the stop strings. */
const STOPPED_HERE = {
  markers: [],
  thought: { open: false, starts: ['<t>'], ends: ['</t>'], implicitEnds: [], headers: [] },
};
/** llama-server's first frame has no token. */
const BEGUN = (harness: RemoteHarness, id: number) => () => harness.of(id).some(({ kind }) => kind === 'started');

t.test('every field that affects sampling is sent', async (t) => {
  const asked: Partial<GenerateJob> = { topK: 5, minP: 0.1, n: 2, seats: 2, seed: 0xffffffff, scope: 'account a' };
  const llama = await RemoteHarness.start(t, 'llama-server');
  await llama.ended(llama.generate(asked));
  const [first, second] = llama.stub.bodies;
  t.match(first, {
    prompt: [5, 6, 7],
    n_predict: 16,
    temperature: 1,
    top_p: 0.9,
    top_k: 5,
    min_p: 0.1,
    frequency_penalty: 0.5,
    presence_penalty: 0.25,
    repeat_penalty: 1,
    seed: 0xfffffffe,
    cache_prompt: false,
  });
  t.equal(second?.['seed'], 0, 'each reply has the next seed');
  await llama.ended(llama.generate());
  t.equal(llama.stub.bodies[2]?.['cache_prompt'], true, 'prefixes that all accounts share are reused');
  const vllm = await RemoteHarness.start(t, 'vllm');
  await vllm.ended(vllm.generate({ ...asked, n: 1, seats: 1 }));
  t.match(vllm.stub.bodies[0], { top_k: 5, min_p: 0.1, repetition_penalty: 1, max_tokens: 16, seed: 0xffffffff });
  t.match(vllm.stub.bodies[0]?.['cache_salt'], /^[0-9a-f]{64}$/);
  t.notMatch(JSON.stringify(vllm.stub.bodies), /account a/, 'not the account’s name');
  const sglang = await RemoteHarness.start(t, 'sglang');
  await sglang.ended(sglang.generate());
  t.match(sglang.stub.bodies[0], { sampling_params: { top_k: -1, min_p: 0, max_new_tokens: 16, sampling_seed: 7 } });
});

t.test(
  'grammars and calls are sent to a server that can apply them itself, and stops if its frames are whole',
  async (t) => {
    const format = { markers: [], grammar: { gbnf: 'root ::= "x"', after: '</think>' } };
    const llama = await RemoteHarness.start(t, 'llama-server');
    await llama.ended(llama.generate({ stops: ['q'], format }));
    t.match(llama.stub.bodies[0], { stop: [], grammar: /^root ::= free-0/, grammar_lazy: false });
    const syntax = { mark: '<call>', open: '<call>{"name": "', between: '", "arguments": ', close: '}</call>' };
    const calls = { syntax, functions: ['f'], single: true, gbnf: 'calls ::= "<call>"' };
    await llama.ended(llama.generate({ stops: ['q'], format: { markers: ['<call>'], calls } }));
    t.match(llama.stub.bodies[1], {
      stop: [],
      grammar: 'root ::= calls\ncalls ::= "<call>"',
      grammar_lazy: true,
      grammar_triggers: [{ type: 1, value: '<call>' }],
      preserved_tokens: ['<call>'],
    });
    const also = { ...calls, syntax: { ...syntax, alsoOpen: ['<f='], between: '>\n' } };
    await llama.ended(llama.generate({ format: { markers: ['<call>'], calls: also } }));
    t.match(llama.stub.bodies[2], {
      grammar_triggers: [
        { type: 1, value: '<call>' },
        { type: 1, value: '<f=f>' },
      ],
      preserved_tokens: ['<call>'],
    });
    const vllm = await RemoteHarness.start(t, 'vllm');
    await vllm.ended(vllm.generate({ stops: ['q'], format: { markers: [], grammar: { gbnf: 'root ::= "x"' } } }));
    t.match(vllm.stub.bodies[0], { stop: ['q'], structured_outputs: { grammar: 'root ::= "x"' } });
    const sglang = await RemoteHarness.start(t, 'sglang');
    await sglang.ended(sglang.generate({ stops: ['q'], format: { markers: [], grammar: { gbnf: 'root ::= "x"' } } }));
    t.match(sglang.stub.bodies[0], { sampling_params: { stop: ['q'], ebnf: 'root ::= "x"' } });
  },
);

t.test('a stop that the sidecar finds ends the reply, whatever the server sends after it', async (t) => {
  // vLLM reports reused tokens in its last frame alone, which does not come then.
  for (const [kind, cached] of [
    ['llama-server', 1],
    ['vllm', 0],
    ['sglang', 1],
  ] as const) {
    const harness = await RemoteHarness.start(t, kind);
    harness.stub.misbehaviour = { hangsAfter: 3 };
    const end = await harness.ended(harness.generate({ stops: ['b'], format: STOPPED_HERE }));
    t.equal(end, `started:${cached} a stop:2 done`, kind);
  }
});

t.test('a complete reply is not held back while the server computes on, but its seat is', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm', { seats: 2, cancelWaitMs: 3_600_000 });
  const seats = (): number | undefined => harness.capacities.at(-1)?.seats;
  harness.stub.misbehaviour = { hangsAfter: 3, goesOnMs: Infinity };
  const end = await harness.ended(harness.generate({ stops: ['b'], format: STOPPED_HERE }));
  t.match(end, /^started:0 a stop:2 done$/);
  t.equal(harness.stub.running, 1, 'the server computes on');
  t.equal(seats(), 1, 'the sidecar gives its seat to no other request');
  const [second, third] = [harness.generate(), harness.generate()];
  await harness.until(BEGUN(harness, second));
  t.equal(harness.stub.bodies.length, 2, 'nor does the loop');
  harness.stub.misbehaviour = {};
  harness.stub.stopLeft();
  t.match(await harness.ended(third), /done$/);
  t.equal(seats(), 2);
});

t.test('a job with further replies keeps the seat of a complete one until the server has ended it', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm', { seats: 2, cancelWaitMs: 3_600_000 });
  harness.stub.misbehaviour = { hangsAfter: 3, goesOnMs: Infinity };
  const id = harness.generate({ stops: ['b'], format: STOPPED_HERE, n: 3, seats: 2 });
  const finished = (): number => harness.of(id).filter(({ kind }) => kind === 'finished').length;
  await harness.until(() => finished() === 2);
  await harness.stub.left();
  t.equal(harness.stub.bodies.length, 2, 'the third one has no seat');
  t.notOk(
    harness.of(id).some(({ kind }) => kind === 'seatFreed'),
    'both are the job’s',
  );
  harness.stub.stopLeft();
  await harness.until(() => finished() === 3);
  t.match(await harness.ended(id), /seatFreed.* done$/);
  t.equal(harness.capacities.at(-1)?.seats, 1, 'of the third one');
});

t.test('a cancelled job keeps its seat until the server’s count has fallen', async (t) => {
  for (const kind of ['llama-server', 'vllm', 'sglang'] as const) {
    const harness = await RemoteHarness.start(t, kind, { seats: 1, cancelWaitMs: 3_600_000 });
    harness.stub.misbehaviour = { ...HANGS, goesOnMs: 150 };
    const id = harness.generate();
    await harness.until(BEGUN(harness, id));
    harness.loop.cancel(id);
    const next = harness.generate();
    t.equal(harness.loop.live, 1, 'it is still counted');
    harness.stub.misbehaviour = { goesOnMs: 150 };
    t.match(await harness.ended(id), /cancelled$/);
    t.equal(harness.stub.running, 0, 'the server had ended it');
    t.match(await harness.ended(next), /done$/);
    t.strictSame(harness.capacities, []);
    t.equal(harness.stub.aborted.length, kind === 'sglang' ? 1 : 0);
  }
});

t.test('a caller who leaves ends no reply but its own', async (t) => {
  const harness = await RemoteHarness.start(t, 'sglang', { seats: 12 });
  // So that only the abort ends it.
  harness.stub.misbehaviour = { ...HANGS, goesOnMs: Infinity };
  const [first = 0, ...others] = Array.from({ length: 12 }, () => harness.generate());
  await harness.until(() => [first, ...others].every((id) => BEGUN(harness, id)()));
  harness.loop.cancel(first);
  t.match(await harness.ended(first), /cancelled$/);
  harness.stub.resume();
  for (const id of others) t.match(await harness.ended(id), /stop:4.*done$/);
});

t.test('a request that may still be on its way to the server is not assumed to have ended', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm');
  harness.stub.misbehaviour = { hangsAfter: 0 };
  const from = performance.now();
  const id = harness.generate();
  harness.loop.cancel(id);
  await harness.ended(id);
  t.ok(performance.now() - from >= 250, 'the server’s metrics cannot include it yet');
});

t.test('a server at rest has no request, whatever it counts', async (t) => {
  for (const kind of ['vllm', 'sglang'] as const) {
    const harness = await RemoteHarness.start(t, kind, { seats: 2, cancelWaitMs: 3_600_000 });
    harness.stub.countLags = true;
    harness.stub.misbehaviour = HANGS;
    const left = [harness.generate(), harness.generate()];
    await harness.until(() => left.every((id) => BEGUN(harness, id)()));
    for (const id of left) harness.loop.cancel(id);
    harness.stub.misbehaviour = {};
    t.match(await harness.ended(harness.generate()), /done$/);
    t.strictSame(harness.capacities, [], 'none is counted as unconfirmed');
  }
});

t.test('a server that computes on for nobody keeps the seats', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm', { seats: 1, cancelWaitMs: 2500 });
  harness.stub.misbehaviour = { ...HANGS, goesOnMs: Infinity };
  const id = harness.generate();
  await harness.until(BEGUN(harness, id));
  harness.loop.cancel(id);
  await harness.ended(id);
  await harness.until(() => harness.capacities.length > 0);
  t.strictSame(harness.capacities, [{ seats: 1, unconfirmed: 1 }], 'until it is given up');
});

t.test('a cancel that the server does not confirm is given up after a bound, and counted', async (t) => {
  const harness = await RemoteHarness.start(t, 'llama-server', { seats: 1, cancelWaitMs: 100 });
  harness.stub.misbehaviour = { ...HANGS, goesOnMs: Infinity };
  const id = harness.generate();
  await harness.until(BEGUN(harness, id));
  harness.loop.cancel(id);
  t.match(await harness.ended(id), /cancelled$/);
  await harness.until(() => harness.capacities.length > 0);
  t.strictSame(harness.capacities, [{ seats: 1, unconfirmed: 1 }]);
  harness.stub.misbehaviour = {};
  t.match(await harness.ended(harness.generate()), /done$/, 'its seat is used again');
});

t.test(
  'no more requests than seats and tokens allow are at the server at once, and none overtakes another',
  async (t) => {
    const bySeats = await RemoteHarness.start(t, 'vllm', { seats: 2 });
    bySeats.stub.misbehaviour = HANGS;
    const [a, b, c] = [bySeats.generate(), bySeats.generate(), bySeats.generate()];
    await bySeats.until(() => BEGUN(bySeats, a)() && BEGUN(bySeats, b)());
    t.equal(bySeats.stub.bodies.length, 2);
    bySeats.stub.misbehaviour = {};
    bySeats.loop.cancel(a);
    t.match(await bySeats.ended(c), /done$/);
    const byTokens = await RemoteHarness.start(t, 'vllm', { seats: 8, tokens: 40 });
    byTokens.stub.misbehaviour = HANGS;
    const [first, large] = [byTokens.generate(), byTokens.generate({ maxTokens: 30 })];
    const small = byTokens.generate({ maxTokens: 1 });
    await byTokens.until(BEGUN(byTokens, first));
    t.equal(byTokens.stub.bodies.length, 1);
    t.strictSame(byTokens.capacities.at(-1), { seats: 3, unconfirmed: 0 }, 'the queue gets no further seat');
    byTokens.stub.misbehaviour = {};
    byTokens.loop.cancel(first);
    await byTokens.ended(large);
    await byTokens.ended(small);
    t.strictSame(byTokens.capacities.at(-1), { seats: 8, unconfirmed: 0 });
  },
);

t.test('several replies run at once as far as the job has seats, and seats are freed as they end', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm');
  const end = await harness.ended(harness.generate({ n: 3, seats: 2 }));
  t.equal(end.match(/stop:4/g)?.length, 3);
  t.equal(end.match(/seatFreed/g)?.length, 1);
  const { prompt } = { prompt: promptIds([{ kind: 'tokens', tokens: Uint32Array.of(5, 6, 7) }]) };
  t.ok(harness.stub.bodies.every((body) => JSON.stringify(body['prompt']) === JSON.stringify([...prompt])));
});

t.test('a later reply of a job that the server refuses is tried again, and the limit is reduced', async (t) => {
  const harness = await RemoteHarness.start(t, 'vllm');
  harness.stub.refused = new Set([1]);
  t.match(await harness.ended(harness.generate({ n: 2, seats: 1 })), /stop:4.*stop:4.*done$/);
  t.equal(harness.stub.bodies.length, 3);
  t.strictSame(harness.capacities[0], { seats: 2, unconfirmed: 0 });
});

t.test(
  'of a reply with a limit nothing is read past it before the next one, and the server is left at the last',
  async (t) => {
    for (const kind of ['llama-server', 'vllm', 'sglang'] as const) {
      const harness = await RemoteHarness.start(t, kind);
      const asked = (id: number): boolean => harness.of(id).some((output) => output.kind === 'needsTokens');
      const text = (id: number): string =>
        harness
          .of(id)
          .map((output) => (output.kind === 'piece' ? output.text : ''))
          .join('');
      const whole = harness.generate({ limit: 2 });
      await harness.until(() => asked(whole) && text(whole) === 'ab');
      // The server has sent its whole reply by the next one's end.
      await harness.ended(harness.generate());
      t.equal(text(whole), 'ab', `${kind}: it waits`);
      harness.loop.limit(whole, { tokens: 16, last: true });
      t.match(await harness.ended(whole), / c stop:4 .*done$/, `${kind}: and goes on`);

      harness.stub.misbehaviour = { hangsAfter: 4, goesOnMs: Infinity };
      const cut = harness.generate({ limit: 2 });
      await harness.until(() => asked(cut) && text(cut) === 'ab');
      harness.loop.limit(cut, { tokens: 2, last: true });
      if (harness.of(cut).every((output) => output.kind !== 'finished')) harness.stub.misbehaviour = {};
      t.match(await harness.ended(cut), /length:2 done$/, `${kind}: it has no token more`);
      harness.stub.misbehaviour = {};
      harness.stub.stopLeft();

      const ended = harness.generate({ limit: 3 });
      await harness.until(() => text(ended) === 'abc');
      harness.loop.limit(ended, { tokens: 3, last: true });
      t.match(
        await harness.ended(ended),
        /(?:length|stop):3 done$/,
        `${kind}: an end token past the limit is not billed`,
      );
    }
  },
);
