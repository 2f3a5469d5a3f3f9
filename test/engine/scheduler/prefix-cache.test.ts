import fc from 'fast-check';
import t from 'tap';
import { UncleanSequence } from '../../../engine/scheduler/faults.js';
import { IMAGE_IDS, tokenPrompt } from '../../../engine/protocol/prompt.js';
import { Bench, job, questions, StepTime, type BenchOptions } from '../../support/step-bench.js';
import { rounds } from '../../support/long-form.js';

const HOUR = 3_600_000;
const ROOM = { bytes: 1e9, maxAgeMs: HOUR };

/** A prompt without common tokens. */
const prompt = (name: number, length = 100): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 1000 * (1 + name) + (i % 7));

/** One sequence, so that each other prompt overwrites its state. */
function bench(more: BenchOptions = {}, seats = 1): Bench {
  return new Bench(seats, undefined, {
    contextPerSeat: 512,
    prefixReuse: 'any',
    saves: true,
    checkpointBytes: 1e9,
    prefixCache: ROOM,
    ...more,
  });
}

let lastId = 0;
/** Runs a chat to its end; returns its cached tokens. */
async function chat(on: Bench, tokens: Uint32Array, scope = 'acme'): Promise<number | undefined> {
  const id = ++lastId;
  await on.run(id, () => on.loop.generate(id, job(tokens, { scope })));
  return on.cached(id);
}

for (const truncatable of [true, false]) {
  t.test(`an overwritten prefix is restored${truncatable ? '' : ', checkpoints included'}`, async (t) => {
    const on = bench({ truncatable });
    t.equal(await chat(on, prompt(0)), 0);
    t.equal(await chat(on, prompt(1)), 0);
    t.same(on.decoder.moves, [['save', 0, 103]]);
    // The next turn continues from all that the sequence held: its prompt, and its reply except for the last token.
    const turn = Uint32Array.of(...prompt(0), ...Buffer.from('vwx'), ...prompt(2, 20));
    t.equal(await chat(on, turn), 103);
    t.match(on.decoder.moves.slice(1), [
      ['save', 0, 103],
      ['restore', 0, 103],
    ]);
    t.match(on.loop.report.cache, { hits: 1, restoredTokens: 103, entries: 2, evictions: { room: 0, failed: 0 } });
    t.same(on.decoder.violations, []);
  });
}

t.test('only for its own account', async (t) => {
  const on = bench();
  await chat(on, prompt(0), 'acme');
  await chat(on, prompt(1), 'acme');
  const run = (by: Bench): Promise<unknown> =>
    by.run(++lastId, () => by.loop.generate(lastId, job(prompt(0), { scope: 'globex' })));
  t.same(
    await run(on),
    await run(bench()),
    'another one’s request takes the decodes that it takes where nothing was sent',
  );
  t.equal(on.cached(lastId - 1), 0);
  t.equal(await chat(on, prompt(0), 'acme'), 99);
});

t.test('short prefixes, and those that another sequence has, are not saved', async (t) => {
  const on = bench();
  await chat(on, prompt(0, 50));
  await chat(on, prompt(1));
  t.same(on.decoder.moves, []);
  const two = bench({}, 2);
  // Two replies to one prompt leave it in two sequences.
  await two.run(++lastId, () => two.loop.generate(lastId, job(prompt(0), { n: 2, seats: 2, scope: 'acme' })));
  await chat(two, prompt(1));
  await chat(two, prompt(2));
  t.equal(two.decoder.moves.length, 1, 'the last of them is');
});

t.test(
  'entries fit into the bytes: those that a sequence has too are removed first, then the least recently used',
  async (t) => {
    // Room for three states of 103 tokens.
    const on = bench({ prefixCache: { ...ROOM, bytes: 3100 } });
    for (const name of [0, 1, 2, 3]) await chat(on, prompt(name));
    t.match(on.loop.report.cache, { entries: 3, bytes: 3090 });
    t.equal(await chat(on, prompt(0)), 99, 'restored, so now in a sequence too');
    t.match(on.loop.report.cache, { entries: 3, evictions: { room: 1 } }, 'saving the fourth removed one');
    await chat(on, prompt(4));
    await chat(on, prompt(5));
    t.ok(on.loop.report.cache.bytes <= 3100);
    t.equal([...on.decoder.saved.values()].length, 3, 'and the others are disposed');
    const none = bench({ prefixCache: { ...ROOM, bytes: 0 } });
    await chat(none, prompt(0));
    await chat(none, prompt(1));
    t.same(none.decoder.moves, [], 'no room, no copy');
    const small = bench({ prefixCache: { ...ROOM, bytes: 1000 } });
    for (const name of [0, 1, 2]) await chat(small, prompt(name));
    t.match(small.loop.report.cache, { entries: 0, bytes: 0 });
    t.equal(small.decoder.moves.length, 1, 'a second one of that size is not even copied');
  },
);

t.test('while memory is short no entry is added, and some are removed', async (t) => {
  let left = 1e9;
  let reads = 0;
  const clock = new StepTime();
  const on = bench({ clock, prefixCache: { ...ROOM, available: () => (reads += 1) && left } });
  for (const name of [0, 1, 2, 3]) await chat(on, prompt(name));
  t.match(on.loop.report.cache, { entries: 3 });
  t.equal(reads, 1, 'it is read once a second at most');
  left = 100;
  clock.ms += 1000;
  await chat(on, prompt(4));
  t.match(on.loop.report.cache, { entries: 2, evictions: { room: 1 } });
  left = 2 * 1030;
  clock.ms += 1000;
  await chat(on, prompt(5));
  await chat(on, prompt(6));
  t.match(on.loop.report.cache, { entries: 4 });
  await chat(on, prompt(7));
  t.match(on.loop.report.cache, { entries: 3 }, 'what was taken since is subtracted');
});

t.test('a longer prefix replaces those that it contains', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  await chat(on, prompt(1));
  await chat(on, Uint32Array.of(...prompt(0), ...Buffer.from('vwx'), ...prompt(2)));
  await chat(on, prompt(1));
  t.match(on.loop.report.cache, { evictions: { replaced: 1 } });
});

t.test('after a failed restore the prompt is evaluated, and a failed save saves nothing', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  await chat(on, prompt(1, 40));
  on.decoder.failingMoves.add(0);
  t.equal(await chat(on, prompt(0)), 0);
  t.match(on.loop.report.cache, { hits: 0, entries: 0, evictions: { failed: 1 } });
  on.decoder.failingMoves.add(0);
  await chat(on, prompt(1));
  t.equal(await chat(on, prompt(0)), 0);
  t.same(on.decoder.violations, []);
});

t.test('a state that could not be restored since its sequence was to be emptied first is kept', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  await chat(on, prompt(1, 40));
  const { restoreWhole } = on.decoder;
  Object.assign(on.decoder, { restoreWhole: () => Promise.reject(new UncleanSequence('scripted')) });
  t.equal(await chat(on, prompt(0)), 0);
  t.match(on.loop.report.cache, { hits: 0, evictions: { failed: 0 } });
  Object.assign(on.decoder, { restoreWhole });
  await chat(on, prompt(2));
  t.ok(((await chat(on, prompt(0))) ?? 0) > 0);
  t.same(on.decoder.violations, []);
});

t.test('of two states with the same number of tokens each is restored for its own prompt', async (t) => {
  const on = bench();
  for (const name of [0, 1, 2]) await chat(on, prompt(name));
  for (const name of [1, 0, 2, 1]) {
    const from = on.decoder.steps.length;
    t.equal(await chat(on, prompt(name)), 99);
    const held = on.decoder.held.get(0)?.slice(0, 100);
    t.same(held, [...prompt(name)]);
    t.ok(on.decoder.steps.length > from);
  }
});

t.test('of many states that begin alike the one with most of a prompt is restored', async (t) => {
  const on = bench();
  const begun = (length: number, name: number): Uint32Array =>
    Uint32Array.of(...prompt(0, length), ...prompt(name, 90));
  for (const [length, name] of [
    [70, 1],
    [150, 2],
    [220, 3],
    [150, 4],
    [70, 5],
  ] as const) {
    await chat(on, begun(length, name));
  }
  for (const [length, name] of [
    [220, 3],
    [150, 4],
    [150, 2],
    [70, 1],
  ] as const) {
    t.equal(await chat(on, begun(length, name)), length + 89);
  }
  t.equal(await chat(on, begun(200, 9)), 200, 'as much as the longest has');
});

t.test('a prefix that was not used for the longest age is removed, from sequences too', async (t) => {
  const clock = new StepTime();
  const on = bench({ clock });
  await chat(on, prompt(0));
  await chat(on, prompt(1));
  clock.ms += HOUR - 1;
  await on.loop.tidy();
  t.match(on.loop.report.cache, { entries: 1 });
  t.equal(on.loop.report.tokens.kept, 103);
  clock.ms += 2;
  await on.loop.tidy();
  t.match(on.loop.report.cache, { entries: 0, evictions: { age: 1 } });
  t.equal(on.loop.report.tokens.kept, 0);
  t.equal(on.decoder.saved.size, 0);
  // It is sent in this turn of the event loop.
  await new Promise(setImmediate);
  t.same(on.held.slice(-2), [
    { sequence: 0, hashes: new Uint32Array(0) },
    { sequence: 1, hashes: new Uint32Array(0) },
  ]);
});

t.test('of a forgotten account nothing is left, also not of jobs that still ran', async (t) => {
  const on = bench({}, 2);
  await chat(on, prompt(0), 'acme');
  await chat(on, prompt(1), 'globex');
  await chat(on, prompt(2), 'globex');
  await chat(on, prompt(3), 'globex');
  const id = ++lastId;
  on.loop.generate(id, job(prompt(4), { scope: 'acme', maxTokens: 50 }));
  await on.ends(id, 'started');
  const forgotten = on.loop.forget('acme');
  await on.ends(id);
  await forgotten;
  const left = [...on.decoder.saved.values(), ...on.decoder.held.values()].map(([first]) => first);
  t.notOk(left.includes(1000) || left.includes(5000), left.join(' '));
  t.ok(left.includes(3000) || left.includes(4000));
  t.equal(await chat(on, prompt(0), 'acme'), 0);
  await on.loop.tidy();
  t.equal(await chat(on, prompt(0), 'acme'), 0, 'also not of a request that waited outside the engine');
  await on.loop.forget('all');
  await chat(on, prompt(0), 'all');
  t.equal(await chat(on, prompt(0), 'all'), 99, 'those of all accounts are kept again');
});

t.test('a saved prefix is reported like a held one, with numbers from the number of seats on', async (t) => {
  const on = bench();
  await chat(on, prompt(0));
  await chat(on, prompt(1));
  t.equal(on.held.filter(({ sequence, hashes }) => sequence === 1 && hashes.length === 1).length, 1);
});

/** Each copy takes so long, ms. */
function copiesTake(on: Bench, clock: StepTime, ms: number): void {
  const { saveWhole, restoreWhole } = on.decoder;
  const slow =
    <G extends unknown[], R>(copy: ((...given: G) => R) | undefined) =>
    (...given: G): R | undefined => {
      clock.ms += ms;
      return copy?.(...given);
    };
  Object.assign(on.decoder, { saveWhole: slow(saveWhole), restoreWhole: slow(restoreWhole) });
}

const STEP_MS = 4;

/** One long reply runs; of the other prompts, the first ones are in the cache and the last in free sequences. */
async function besideReply(
  seats: number,
  copyMs: number,
): Promise<{ on: Bench; reply: number; between: ('save' | 'restore')[][] }> {
  const clock = new StepTime();
  const on = bench({ clock, runTells: 2, contextPerSeat: 1024 }, seats);
  copiesTake(on, clock, copyMs);
  const between: ('save' | 'restore')[][] = [];
  let seen = 0;
  on.decoder.onStep = () => {
    clock.ms += STEP_MS;
    between.push(on.decoder.moves.slice(seen).map(([what]) => what));
    seen = on.decoder.moves.length;
  };
  for (let name = 0; name < 2 * seats; name += 1) await chat(on, prompt(name));
  const reply = ++lastId;
  on.loop.generate(reply, job(prompt(99), { scope: 'acme', maxTokens: 800 }));
  await on.ends(reply, 'piece');
  between.length = 0;
  return { on, reply, between };
}

/** Whether copies came in step after step, with no run of steps between them. */
function closely(between: readonly unknown[][]): boolean {
  const filled = between.map((moves) => moves.length > 0);
  return filled.lastIndexOf(true) - filled.indexOf(true) < 60;
}

async function threeChats({ on }: { on: Bench }): Promise<(number | undefined)[]> {
  const ids = [0, 1, 2].map((name) => {
    const id = ++lastId;
    on.loop.generate(id, job(prompt(name), { scope: 'acme' }));
    return id;
  });
  await Promise.all(ids.map((id) => on.ends(id)));
  return ids.map((id) => on.cached(id));
}

t.test('beside running replies copies that take most of a step are in rounds of their own, in order', async (t) => {
  const beside = await besideReply(4, 3);
  const { on, reply, between } = beside;
  t.same(await threeChats(beside), [99, 99, 99]);
  const copies = between.filter((moves) => moves.length > 0);
  t.same(copies, [['save'], ['restore'], ['save'], ['restore'], ['save'], ['restore']]);
  t.ok(closely(between));
  on.loop.cancel(reply);
  t.same(on.decoder.violations, []);
});

t.test('short copies share a round, within the time of a step', async (t) => {
  const beside = await besideReply(4, 1);
  const { on, reply, between } = beside;
  t.same(await threeChats(beside), [99, 99, 99]);
  const counts = between.map((moves) => moves.length);
  t.equal(
    counts.reduce((sum, count) => sum + count, 0),
    6,
  );
  t.ok([2, 3].includes(Math.max(...counts)), counts.join(' '));
  on.loop.cancel(reply);
});

t.test('further replies of a job wait until there is time for their copies, and no longer', async (t) => {
  const { on, reply, between } = await besideReply(4, 3);
  const id = ++lastId;
  on.loop.generate(id, job(prompt(50), { scope: 'acme', n: 3, seats: 3 }));
  await on.ends(id);
  t.same(
    between.filter((moves) => moves.length > 0),
    [['save'], ['save'], ['save']],
  );
  // Between the first two its prompt is evaluated.
  t.equal(
    between.findLastIndex((moves) => moves.length > 0),
    between.findIndex((moves, at) => at > 0 && moves.length > 0) + 1,
  );
  on.loop.cancel(reply);
  t.same(on.decoder.violations, []);
});

t.test('beside replies a state that cannot be saved before the next decode is saved after it', async (t) => {
  for (const refusals of [1, 2]) {
    const { on, reply } = await besideReply(4, 1);
    const { saveWhole } = on.decoder;
    let left = refusals;
    const refuses = (...given: Parameters<NonNullable<typeof saveWhole>>): unknown =>
      left-- > 0 ? Promise.reject(new UncleanSequence('scripted')) : saveWhole?.(...given);
    Object.assign(on.decoder, { saveWhole: refuses });
    on.decoder.moves.length = 0;
    t.equal(await chat(on, prompt(50)), 0);
    t.equal(on.decoder.moves.length, refusals === 1 ? 1 : 0, 'none may follow, so it is awaited once');
    on.loop.cancel(reply);
  }
});

t.test('alone a job has both at once', async (t) => {
  const on = bench();
  for (const name of [0, 1]) await chat(on, prompt(name));
  on.decoder.moves.length = 0;
  let before = NaN;
  on.decoder.onStep = () => void (before = Number.isNaN(before) ? on.decoder.moves.length : before);
  t.equal(await chat(on, prompt(0)), 99);
  t.equal(before, 2, 'before its first decode');
});

t.test('a job that is cancelled between the two does neither, and those behind it go on', async (t) => {
  const { on, reply } = await besideReply(3, 3);
  on.decoder.moves.length = 0;
  const [first, second] = [++lastId, ++lastId];
  const { onStep } = on.decoder;
  on.decoder.onStep = (step) => {
    if (on.decoder.moves.length === 1) on.loop.cancel(first);
    return onStep(step);
  };
  on.loop.generate(first, job(prompt(0), { scope: 'acme' }));
  on.loop.generate(second, job(prompt(1), { scope: 'acme' }));
  await on.ends(second);
  t.equal(on.cached(second), 99);
  t.same(on.of(first), []);
  t.same(
    on.decoder.moves.map(([what]) => what),
    ['save', 'restore'],
    'into the sequence that the first one has saved',
  );
  on.loop.cancel(reply);
  t.same(on.decoder.violations, []);
});

t.test('between the two a job does not wait for another one’s image', async (t) => {
  const on = bench({}, 2);
  for (const name of [0, 1, 2]) await chat(on, prompt(name));
  const picture = ++lastId;
  const tokens = new Uint32Array(9).fill(IMAGE_IDS);
  const image = { kind: 'image', tokens, digest: new Uint8Array(32), positions: 9, columns: 0, whole: false } as const;
  on.loop.generate(picture, job(0, { prompt: [image, ...tokenPrompt(prompt(9, 3))] }));
  await on.ends(picture, 'started');
  on.decoder.moves.length = 0;
  t.equal(await chat(on, prompt(0)), 99);
  t.same(
    on.decoder.moves.map(([what]) => what),
    ['save', 'restore'],
  );
  on.loop.cancel(picture);
});

t.test(
  'random sequences of operations: text and state as without a cache, within the bytes, everything disposed',
  async (t) => {
    const request = fc.record({
      name: fc.nat(4),
      turns: fc.integer({ min: 1, max: 3 }),
      scope: fc.constantFrom('acme', 'globex'),
      decision: fc.boolean(),
      fails: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { maxLength: 12 }),
        fc.boolean(),
        fc.integer({ min: 0, max: 6000 }),
        fc.nat(2),
        async (requests, truncatable, bytes, parked) => {
          const on = bench({ truncatable, parked, prefixCache: { bytes, maxAgeMs: HOUR } }, 2);
          const plain = bench({ truncatable, prefixCache: { bytes: 0, maxAgeMs: HOUR }, prefixReuse: 'off' }, 2);
          for (const { name, turns, scope, decision, fails } of requests) {
            if (fails) on.decoder.failingMoves.add(0);
            const tokens = prompt(name, 70 * turns);
            const id = ++lastId;
            for (const each of [on, plain]) {
              await each.run(id, () => {
                if (decision) each.loop.score(id, questions(tokens, [3, 5], { scope }));
                else each.loop.generate(id, job(tokens, { scope }));
              });
            }
            const ends = (each: Bench): unknown =>
              each.of(id).filter(({ kind }) => kind !== 'started' && kind !== 'cached');
            t.same(ends(on), ends(plain));
            if (on.loop.report.cache.bytes > bytes) t.fail('more bytes than there may be');
          }
          await on.loop.forget('acme');
          await on.loop.forget('globex');
          return on.decoder.saved.size === 0 && on.decoder.violations.length === 0 && on.loop.report.cache.bytes === 0;
        },
      ),
      { numRuns: rounds({ short: 6, long: 40 }) },
    );
  },
);

for (const truncatable of [true, false]) {
  t.test(`a state that another process has saved is restored${truncatable ? '' : ', the whole of it'}`, async (t) => {
    const [one, other] = [bench({ truncatable }), bench({ truncatable })];
    await chat(one, prompt(0));
    await chat(one, prompt(1));
    const state = one.held.find((held) => held.state)?.state;
    t.match(state, { tokens: 103 });
    if (!state) return;
    const elsewhere = { ...state, pid: 1 };
    const turn = Uint32Array.of(...prompt(0), ...Buffer.from('vwx'), ...prompt(2, 20));
    const ask = async (on: Bench, tokens: Uint32Array, scope: string): Promise<number | undefined> => {
      const id = ++lastId;
      await on.run(id, () => on.loop.generate(id, job(tokens, { scope, elsewhere })));
      return on.cached(id);
    };
    t.equal(await ask(other, turn, 'acme'), 103);
    t.match(other.loop.report.cache, { hits: 1, restoredTokens: 103, entries: 1 });
    t.ok(
      other.held.some(({ sequence, hashes }) => sequence === 1 && hashes.length === 1),
      'it is reported as held',
    );
    t.equal(await ask(other, turn, 'acme'), 122, 'from its own sequence');
    t.equal(other.loop.report.cache.hits, 1);
    // The other process drops it.
    await one.loop.forget('acme');
    const third = bench({ truncatable });
    t.equal(await ask(third, turn, 'acme'), 0, 'gone: a prefill');
    t.equal(third.loop.report.cache.entries, 0);
    await other.loop.forget('acme');
    t.equal(other.decoder.saved.size, 0, 'an account that is closed is forgotten in both');
    t.same([...one.decoder.violations, ...other.decoder.violations], []);
  });
}

/** Of a chat of 100 prompt tokens the prefill takes 100 ms. `copyMs`: what each copy takes. */
function measured(copyMs: number, more: BenchOptions = {}): { on: Bench; some: Some; clock: StepTime } {
  const clock = new StepTime();
  const on = bench({ clock, prefillTokensPerStep: 25, ...more });
  copiesTake(on, clock, copyMs);
  on.decoder.onStep = () => {
    clock.ms += (on.decoder.steps.at(-1) ?? []).reduce((sum, { tokens }) => sum + tokens.length, 0);
  };
  const saves = (): number => on.decoder.moves.filter(([what]) => what === 'save').length;
  const some = async (from: number, count: number, scope = 'acme'): Promise<number> => {
    const before = saves();
    for (let name = from; name < from + count; name += 1) await chat(on, prompt(name), scope);
    return saves() - before;
  };
  return { on, some, clock };
}

/** Runs as many chats, and returns the saves. */
type Some = (from: number, count: number, scope?: string) => Promise<number>;

t.test('saves are paced from the first on by what they take, where none comes back', async (t) => {
  const cheap = measured(1);
  t.equal(await cheap.some(0, 61), 60, 'a hundredth of the prefill: as long as one of 90 may come back');
  t.ok((await cheap.some(100, 200)) < 100);
  const dear = measured(5);
  const first = await dear.some(0, 31);
  t.ok(first >= 20 && first <= 22, `a twentieth: for a tenth of a second, ${first} of 30`);
  t.ok((await dear.some(100, 100)) <= 7, 'then those after a pause of 400 copies');
});

t.test('where saved prefixes come back all are saved, of that account alone', async (t) => {
  const { on, some } = measured(5);
  await some(0, 40);
  // The first ones were saved.
  for (const name of [0, 1, 2, 3, 4, 5, 6, 7]) t.equal(await chat(on, prompt(name)), 99);
  t.equal(await some(200, 10), 9, 'but for the last, which is saved already');
  await some(300, 60, 'globex');
  t.ok((await some(400, 20, 'globex')) <= 4, 'another one’s never came back');
  t.ok((await some(500, 10)) >= 9);
});

t.test(
  'where a copy takes longer than the prefill none is restored, and hardly any saved, until it is cheaper',
  async (t) => {
    let copyMs = 150;
    const { on, some, clock } = measured(0);
    const { saveWhole, restoreWhole } = on.decoder;
    Object.assign(on.decoder, {
      saveWhole: (...given: Parameters<NonNullable<typeof saveWhole>>) => {
        clock.ms += copyMs;
        return saveWhole?.(...given);
      },
      restoreWhole: (...given: Parameters<NonNullable<typeof restoreWhole>>) => {
        clock.ms += copyMs;
        return restoreWhole?.(...given);
      },
    });
    t.equal(await some(0, 3), 1);
    for (const cached of [99, 99, 0, 0]) {
      t.equal(await chat(on, prompt(0)), cached, cached > 0 ? 'measured twice' : 'the prompt is evaluated');
      await chat(on, prompt(1));
    }
    clock.ms += 60_000;
    t.equal(await some(10, 300), 1, 'tried again after 256');
    copyMs = 1;
    clock.ms += 60_000;
    await some(400, 150);
    t.equal(await some(700, 5), 5);
    t.equal(await chat(on, prompt(703)), 99);
  },
);
