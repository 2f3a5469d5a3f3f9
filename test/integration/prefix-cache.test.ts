/** Saved prefixes over HTTP, on two replicas with a seat each: whom they serve, how fast, and what is left of a frozen account. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { makeKey } from '../support/keys.js';
import { cpuLlama } from '../support/llama.js';
import { countInMemory } from '../support/memory-search.js';
import { embeddedTestModel } from '../support/models.js';
import { eventually } from '../support/processes.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const ACCOUNTS = ['acme', 'globex'] as const;
type Account = (typeof ACCOUNTS)[number];

const CHUNK = 64;
/** Token ids in a row that are looked for: fewer could be chance. */
const ROW = 16;
const ROWS = 12;

const folder = await mkdtemp(join(tmpdir(), 'ra-prefix-cache-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const keys = new Map(ACCOUNTS.map((account) => [account, makeKey({ id: account, account })]));
const keyFile = join(folder, 'keys.json');
const writeKeys = (accounts: object): Promise<void> =>
  writeFile(keyFile, JSON.stringify({ version: 1, accounts, keys: [...keys.values()].map(({ stored }) => stored) }));
await writeKeys({});

const file = await embeddedTestModel();
const model = {
  id: CHAT,
  kind: 'chat',
  file,
  gpu: false,
  threads: 1,
  seats: 1,
  contextPerSeat: 4096,
  prefillTokensPerStep: CHUNK,
  prefixCache: { bytes: 2 ** 28 },
  replicas: 2,
};
const sidecar = await Sidecar.start(t, { config: { models: [model], keys: { file: keyFile } } });
const pids = sidecar.lines.filter(({ event }) => event === 'engine forked').map((line) => Number(line['pid']));

/** A text by chance, of some 1,500 tokens. */
function text(salt: number): string {
  let random = salt;
  const word = (): string =>
    Array.from({ length: 5 }, () => {
      random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
      return String.fromCharCode(97 + ((random >>> 16) % 26));
    }).join('');
  return Array.from({ length: 250 }, word).join(' ');
}

interface Asked {
  readonly cached: number;
  readonly prompt: number;
  readonly ms: number;
}

async function ask(account: Account, system: string): Promise<Asked> {
  const body = { model: CHAT, messages: [{ role: 'user', content: system }], max_tokens: 1, temperature: 0 };
  const from = performance.now();
  const response = await sidecar.post('/chat/completions', body, { key: keys.get(account)?.key ?? null });
  t.equal(response.status, 200);
  const { usage } = (await response.json()) as {
    usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
  };
  const ms = performance.now() - from;
  return { cached: usage.prompt_tokens_details.cached_tokens, prompt: usage.prompt_tokens, ms };
}

/** Undefined for a descriptor that its process has closed meanwhile. */
function ifOpen<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}

/** Files of saved states that a process has open, as [the process that made it, path]. */
function statesOf(pid: number): (readonly [maker: number, path: string])[] {
  const states: [number, string][] = [];
  for (const descriptor of readdirSync(`/proc/${pid}/fd`)) {
    const path = `/proc/${pid}/fd/${descriptor}`;
    const maker = /^\/dev\/shm\/ra-(\d+)-/.exec(ifOpen(() => readlinkSync(path)) ?? '')?.[1];
    if (maker !== undefined) states.push([Number(maker), path]);
  }
  return states;
}

t.test('what one replica has saved is restored by the other', async (t) => {
  // Given in turn: acme's on the first, globex's on the second, and then on the first.
  t.equal((await ask('acme', text(1))).cached, 0);
  await ask('globex', text(2));
  await ask('globex', text(3));
  await sidecar.reaches('ra_sidecar_prefix_cache_bytes', (bytes) => bytes > 0);
  const again = await ask('acme', text(1));
  t.ok(again.cached > again.prompt - 2 * CHUNK, `${again.cached} of ${again.prompt} tokens`);
  await sidecar.reaches('ra_sidecar_prefix_cache_hits_total', 1);
  const foreign = pids.flatMap((pid) => statesOf(pid).filter(([maker]) => maker !== pid));
  t.equal(foreign.length, 1, 'from a file of the other process');
});

t.test('no account is faster for what another one sent, nor are its tokens counted as cached', async (t) => {
  const own: Asked[] = [];
  const others: Asked[] = [];
  for (const salt of [10, 11, 12]) {
    await ask('acme', text(salt));
    // It is in a sequence of the one replica; then saved, and in one of the other account's.
    others.push(await ask('globex', text(salt)));
    own.push(await ask('acme', text(salt)));
  }
  t.same(
    others.map(({ cached }) => cached),
    [0, 0, 0],
  );
  t.ok(own.every(({ cached, prompt }) => cached > prompt - 2 * CHUNK));
  const [fastest, slowest] = [Math.min(...others.map(({ ms }) => ms)), Math.min(...own.map(({ ms }) => ms))];
  // All of a prompt beside a chunk of it: some twenty times as long.
  t.ok(fastest > 2 * slowest, `${fastest} ms of another's, ${slowest} ms of its own`);
});

t.test('of an account that the keys file freezes nothing is left, in any engine', async (t) => {
  const llama = await cpuLlama(1);
  const vocabulary = await llama.loadModel({ modelPath: file, vocabOnly: true });
  const ids = Uint32Array.from(vocabulary.tokenize(text(1)));
  await llama.dispose();
  // From its middle, since the template may join its ends with what is around. All rows would take long to look for.
  const rows = Array.from({ length: ROWS }, (_, i) =>
    Buffer.from(ids.slice((4 * i + 4) * ROW, (4 * i + 5) * ROW).buffer),
  );
  const inFiles = (): number => {
    const all = pids.flatMap((pid) => statesOf(pid).map(([, path]) => ifOpen(() => readFileSync(path))));
    return all.reduce((sum, bytes) => sum + rows.filter((row) => bytes?.includes(row)).length, 0);
  };
  const inMemory = (): number => pids.reduce((sum, pid) => sum + countInMemory(pid, rows), 0);
  t.ok(ids.length > (4 * ROWS + 4) * ROW);
  t.ok(inFiles() >= rows.length, 'its ids are in a file of its states');
  t.ok(inMemory() >= rows.length, 'and in memory');
  await writeKeys({ acme: { frozen: true } });
  await sidecar.reaches('ra_sidecar_prefix_cache_evictions_total', (count) => count > 0, { reason: 'forgotten' });
  // What it left in sequences goes in the same step as what is in caches.
  await sidecar.reaches('ra_sidecar_prefix_cache_evictions_total', (count) => count >= 2, { reason: 'forgotten' });
  await Promise.all([ask('globex', text(20)), ask('globex', text(21))]);
  // Each engine forgets in a step of its own. Buffers of the addon and of llama.cpp for a batch are freed as they are: a chunk
  // for each thread of each engine.
  await eventually('its states are removed', () => inFiles() === 0);
  // They stay there until other prompts take their place.
  let other = 22;
  await eventually('its ids are out of memory', async () => {
    if (inMemory() < rows.length / 2) return true;
    await Promise.all([ask('globex', text(other++)), ask('globex', text(other++))]);
    return false;
  });
});
