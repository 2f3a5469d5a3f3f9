/** The order of service on a real engine: a free seat prefers the prompt of which it has a long prefix. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { NOTHING_LEARNED, PATIENT_ENGINE, PATIENT_QUEUE } from '../support/config-parts.js';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel } from '../support/models.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

const ACCOUNTS = ['occupant', 'stranger', 'sharer'] as const;
type Account = (typeof ACCOUNTS)[number];

/** Some 400 tokens that two of the three prompts begin with. */
const SHARED = 'Be brief and kind, and say what you know of the sea. '.repeat(30);
const OCCUPIES = 'Count all ships that ever sailed to the islands. '.repeat(30);
const OTHER = 'Tell us nothing at all but what the mountains say. '.repeat(30);

const folder = await mkdtemp(join(tmpdir(), 'ra-affinity-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const keys = new Map(ACCOUNTS.map((account) => [account, makeKey({ id: account, account })]));
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: [...keys.values()].map(({ stored }) => stored) }));

interface Served {
  /** The same once more, when the sharer's prefix is saved and no sequence has it. */
  readonly later: string[];
  /** Accounts in the order in which they were served; the stranger had arrived before the sharer. */
  readonly order: string[];
  /** Tokens of the sharer’s prompt that were not evaluated: of its first request, and of the same one again. */
  readonly cached: readonly [first: number, again: number];
}

async function served(prefixReuse: 'any' | 'off', scope: 'all' | 'account'): Promise<Served> {
  const file = await embeddedTestModel();
  const model = { id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 2048, prefixReuse, prefixCache: { scope } };
  const sidecar = await Sidecar.start(t, {
    config: {
      models: [model],
      keys: { file: keyFile },
      queue: PATIENT_QUEUE,
      development: NOTHING_LEARNED,
      engine: PATIENT_ENGINE,
    },
  });
  const ask = async (account: Account, system: string, tokens: number): Promise<number> => {
    const body = {
      model: CHAT,
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: `I am the ${account}` },
      ],
      max_tokens: tokens,
      temperature: 0,
    };
    const response = await sidecar.post('/chat/completions', body, { key: keys.get(account)?.key ?? null });
    t.equal(response.status, 200);
    const { usage } = (await response.json()) as { usage: { prompt_tokens_details: { cached_tokens: number } } };
    return usage.prompt_tokens_details.cached_tokens;
  };
  /** Cached tokens of the sharer; `occupies`: what the occupant asks. */
  const inTurn = async (occupies: string): Promise<number> => {
    // Stopped until both others wait, however long a busy machine takes for that.
    const engine = sidecar.enginePid(CHAT);
    process.kill(engine, 'SIGSTOP');
    const occupied = ask('occupant', occupies, 600);
    const others: Promise<number>[] = [];
    try {
      await sidecar.reaches('ra_sidecar_seats_busy', 1);
      others.push(ask('stranger', OTHER, 4));
      await sidecar.reaches('ra_sidecar_waiting_requests', 1);
      others.push(ask('sharer', SHARED, 4));
      await sidecar.reaches('ra_sidecar_waiting_requests', 2);
    } finally {
      process.kill(engine, 'SIGCONT');
    }
    return (await Promise.all([occupied, ...others])).at(-1) ?? NaN;
  };
  const accounts = (): string[] =>
    sidecar.lines.filter(({ event }) => event === 'request').map((line) => String(line['account']));
  const first = await inTurn(SHARED);
  await sidecar.logged('request', ACCOUNTS.length);
  const order = accounts();
  // The seat has what the last of them left; repeated, so that it is the sharer’s own.
  await ask('sharer', SHARED, 4);
  const again = await ask('sharer', SHARED, 4);
  await sidecar.logged('request', ACCOUNTS.length + 2);
  await inTurn(OCCUPIES);
  await sidecar.logged('request', 2 * ACCOUNTS.length + 2);
  return { order, cached: [first, again], later: accounts().slice(ACCOUNTS.length + 2) };
}

t.test(
  'if accounts share prefixes, a request whose prefix the seat has goes before one that arrived earlier',
  async (t) => {
    const { order, cached } = await served('any', 'all');
    t.same(order, ['occupant', 'sharer', 'stranger']);
    t.ok(cached[0] > 256, `${cached[0]} tokens of another account`);
  },
);

t.test('if each account has its own, neither the order nor the usage shows what another one sent', async (t) => {
  const { order, cached, later } = await served('any', 'account');
  t.same(order, ['occupant', 'stranger', 'sharer']);
  t.equal(cached[0], 0, 'nothing of another account');
  t.ok(cached[1] > 256, `${cached[1]} of its own`);
  t.same(later, ['occupant', 'sharer', 'stranger'], 'its own saved prefix counts as one that the seat holds');
});

t.test('without reuse the order of arrival decides', async (t) => {
  const { order, cached } = await served('off', 'all');
  t.same(order, ['occupant', 'stranger', 'sharer']);
  t.same(cached, [0, 0]);
});
