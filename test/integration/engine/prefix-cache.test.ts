/**
 * Overwritten prefixes that are restored, on real models: a request that runs alone gets the same reply, bit for bit.
 */
import { closeSync, fstatSync, ftruncateSync, openSync, readdirSync, readlinkSync, readSync, writeSync } from 'node:fs';
import t from 'tap';
import type { GenerateJob } from '../../../engine/protocol/jobs.js';
import type { StateElsewhere } from '../../../engine/protocol/cache-key.js';
import { HeldPrefixes, prefixOf } from '../../../sidecar/engine-client/prefixes.js';
import { ARCHITECTURES, architectureModel } from '../../support/architectures.js';
import { cpuLlama } from '../../support/llama.js';
import { cases } from '../../support/long-form.js';
import { embeddedTestModel } from '../../support/models.js';
import { RealLoop, type RealLoopOptions } from '../../support/real-loop.js';
import { job as plain } from '../../support/step-bench.js';

const SHORT: readonly string[] = ['llama', 'hybrid', 'sliding-window'];
const CHUNK = 64;
const REPLY = 12;
const TURNS = 3;
const CHATS = 3;
const ROOM = { checkpointBytes: 64 * 2 ** 20, prefixCache: { bytes: 256 * 2 ** 20, maxAgeMs: 1e9 } } as const;

const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

const words = (length: number, salt: number): number[] =>
  Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: readonly number[]): GenerateJob => plain(Uint32Array.from(prompt), { maxTokens: REPLY });

interface Turns {
  readonly tokens: unknown[];
  readonly cached: number[][];
  /** Of the turns that would come next. */
  readonly prompts: number[][];
}

/** Turns of several chats in turn on one sequence, so that each overwrites the previous one. */
async function turns(loop: RealLoop): Promise<Turns> {
  const prompts = Array.from({ length: CHATS }, (_, salt) => words(2 * CHUNK + 20, salt));
  const tokens: unknown[] = [];
  const cached: number[][] = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    cached[turn] = [];
    for (const [at, prompt] of prompts.entries()) {
      const ran = await loop.run(chat(prompt));
      tokens.push(ran.tokens);
      cached[turn]?.push(ran.cached);
      prompt.push(...(ran.tokens[0] ?? []), ...words(CHUNK, 10 * turn + at));
    }
  }
  return { tokens, cached, prompts };
}

t.test(
  'a prefix that was parked in a further sequence is copied back: the same replies, and nothing in host memory',
  async (t) => {
    const model = await llama.loadModel({ modelPath: await embeddedTestModel() });
    const run = async (options: RealLoopOptions): Promise<Turns> => {
      const loop = await RealLoop.make(model, { seats: 1, prefillTokensPerStep: CHUNK, ...options });
      const made = await turns(loop);
      t.same(memoryFiles(), []);
      await loop.dispose();
      return made;
    };
    const parked = await run({ parked: CHATS });
    const plain = await run({ prefixReuse: 'off' });
    t.same(parked.tokens, plain.tokens);
    t.same(parked.cached[0], [0, 0, 0]);
    for (const [turn, cached] of parked.cached.slice(1).entries())
      t.ok(
        cached.every((tokens) => tokens >= (turn + 2) * CHUNK),
        cached.join(),
      );
    await model.dispose();
  },
);

/** Names of this process’s files in memory. */
const memoryFiles = (): string[] => readdirSync('/dev/shm').filter((name) => name.startsWith(`ra-${process.pid}-`));

/** Changes each state that this process has in memory. */
function spoilStates(act: (file: number) => void): void {
  for (const descriptor of readdirSync('/proc/self/fd')) {
    const path = `/proc/self/fd/${descriptor}`;
    try {
      if (!readlinkSync(path).startsWith(`/dev/shm/ra-${process.pid}-`)) continue;
    } catch {
      // The folder's own descriptor.
      continue;
    }
    const file = openSync(path, 'r+');
    act(file);
    closeSync(file);
  }
}

/** One bit in the middle. */
function flip(file: number): void {
  const byte = new Uint8Array(1);
  const at = Math.floor(fstatSync(file).size / 2);
  readSync(file, byte, 0, 1, at);
  writeSync(file, Uint8Array.of((byte[0] ?? 0) ^ 4), 0, 1, at);
}

/** The state with most of a prompt, as a sidecar finds it among those that a loop reported. */
function savedBy(loop: RealLoop, prompt: readonly number[]): StateElsewhere {
  const index = new HeldPrefixes(1, 1024);
  index.apply(loop.held);
  const job = chat(prompt);
  const state = index.sharedState(prefixOf(job.prompt, job.scope));
  if (!state) throw new Error('nothing saved');
  return { ...state, pid: process.pid };
}

// In the short form one of each kind of state: one that can be truncated, one in layers with and without, one in windows.
for (const name of cases(['llama', ...ARCHITECTURES] as const, (each) => SHORT.includes(each))) {
  t.test(name, async (t) => {
    const file = name === 'llama' ? await embeddedTestModel() : await architectureModel(name);
    const model = await llama.loadModel({ modelPath: file });
    t.teardown(() => model.dispose());
    const make = async (options: RealLoopOptions): Promise<RealLoop> => {
      const loop = await RealLoop.make(model, { seats: 1, ...ROOM, ...options });
      t.teardown(() => loop.dispose());
      return loop;
    };
    const run = async (options: RealLoopOptions): Promise<Turns & { loop: RealLoop }> => {
      const loop = await make(options);
      return { ...(await turns(loop)), loop };
    };
    const fresh = await run({ prefixReuse: 'off' });
    const { tokens, cached, prompts, loop } = await run({});
    t.same(tokens, fresh.tokens, 'the same replies');
    t.same(fresh.cached.flat(), new Array(TURNS * CHATS).fill(0));
    t.same(cached[0], [0, 0, 0]);
    t.equal(loop.cache.evictions.failed, 0);
    for (const later of cached.slice(1).flat()) t.ok(later >= 2 * CHUNK, `${later} tokens restored`);
    t.ok(loop.cache.entries >= CHATS - 1);
    t.same(memoryFiles(), [], 'no file has a name');

    const any = await run({ prefixReuse: 'any' });
    for (const later of any.cached.slice(1).flat()) t.ok(later >= 2 * CHUNK + 20);

    const [next = []] = any.prompts;
    const job = chat(next);
    const elsewhere = savedBy(any.loop, next);
    const other = await make({ prefixReuse: 'any' });
    const there = await other.run({ ...job, elsewhere });
    const here = await any.loop.run(job);
    t.same(there.tokens, here.tokens, 'another context restores the same');
    t.equal(there.cached, here.cached);
    await any.loop.forget(job.scope);
    const late = await make({ prefixReuse: 'any' });
    t.equal((await late.run({ ...job, elsewhere })).cached, 0, 'what is gone costs a prefill');
    if (name === 'llama') {
      const third = await make({ prefixReuse: 'any' });
      const again = await third.run({ ...job, elsewhere: savedBy(other, next) });
      t.same([again.tokens, again.cached], [there.tokens, there.cached], 'from the one that had restored it');
    }

    // Each turn brings an entry back that no longer is what was saved.
    for (const spoil of [flip, (file: number) => ftruncateSync(file, 1000)]) {
      const before = loop.cache.evictions.failed;
      spoilStates(spoil);
      const ran = await loop.run(chat(prompts[before] ?? []));
      t.equal(loop.cache.evictions.failed, before + 1);
      t.equal(ran.cached, 0);
      const clean = await make({ prefixReuse: 'off' });
      t.same(
        ran.tokens,
        (await clean.run(chat(prompts[before] ?? []))).tokens,
        'evaluated instead, with the same reply',
      );
    }
    await loop.forget('all');
    t.equal(loop.cache.bytes, 0);
  });
}
