import t from 'tap';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import {
  hashKey,
  KEYS,
  type KeyFile,
  type StoredKey,
  signOfKeyFile,
  writeKeyFile,
} from '../../../sidecar/access/key-file.js';
import { KeyFileIdentity, WatchedKeys } from '../../../sidecar/access/key-identity.js';
import { inCohort, mayCall, mayUse, type Caller, type Denied } from '../../../sidecar/access/identity.js';
import { makeKey, sends } from '../../support/keys.js';
import { systemClock, type Clock } from '../../../sidecar/lib/clock.js';
import { FakeClock } from '../../support/fake-clock.js';

const NOW = Date.parse('2026-06-01T00:00:00Z');

function ask(
  changes: Partial<StoredKey> = {},
  more: Partial<KeyFile> = {},
  environment = 'development',
): Promise<Caller | Denied> {
  const { key, stored } = makeKey(changes);
  const identity = new KeyFileIdentity({ version: 1, keys: [stored], ...more }, environment, { now: () => NOW });
  return identity.resolve(sends(`Bearer ${key}`));
}

async function code(...args: Parameters<typeof ask>): Promise<string> {
  const answer = await ask(...args);
  return answer.kind === 'denied' ? answer.code : 'caller';
}

t.test('a valid key has its account, models and weight', async (t) => {
  const limits = { decisions: { inFlight: 2, perMinute: 60 } };
  t.strictSame(await ask({ id: 'k1', limits }), {
    kind: 'caller',
    account: 'acme',
    keyId: 'k1',
    environment: 'development',
    models: 'all',
    limits,
    weight: 4,
  });
  const own = { chat: { inFlight: 0 }, models: { perMinute: 5 } };
  t.strictSame(await ask({ id: 'k1', limits: own }), { ...(await ask({ id: 'k1' })), limits: own });
  t.match(await ask({ weight: 16 }), { weight: 16 });
  t.match(await ask({ class: 'interactive' }), { weight: 16 });
  t.match(await ask({ class: 'standard' }), { weight: 4 });
  t.match(await ask({ class: 'batch' }), { weight: 1 });
});

t.test('each of several keys has its own', async (t) => {
  const keys = [makeKey({ id: 'a' }), makeKey({ id: 'b' }), makeKey({ id: 'c' })];
  const identity = new KeyFileIdentity({ version: 1, keys: keys.map(({ stored }) => stored) }, 'development');
  for (const { key, stored } of keys) t.match(await identity.resolve(sends(`Bearer ${key}`)), { keyId: stored.id });
});

t.test('whatever is not a known key after Bearer is invalid', async (t) => {
  const { key, stored } = makeKey();
  const identity = new KeyFileIdentity({ version: 1, keys: [stored] }, 'development');
  for (const authorization of [
    ...[undefined, '', 'Bearer', 'Bearer ', key, `Basic ${key}`, `Bearer ${key.slice(0, -1)}`, `Bearer ${key}x`],
    ...[`Bearer ${key} ${key}`, `Bearer ${key}\n`, `Bearer ${stored.hash}`, `Bearer ${'x'.repeat(100_000)}`],
  ])
    t.strictSame(await identity.resolve(sends(authorization)), { kind: 'denied', code: 'invalid_api_key' });
  t.match(await identity.resolve(sends(`bearer   ${key}`)), { kind: 'caller' }, 'the scheme is case-insensitive');
});

t.test('what a key is answered with is found by its id too', async (t) => {
  const keys = [
    makeKey({ id: 'good' }),
    makeKey({ id: 'revoked', revoked: '2026-05-01T00:00:00Z' }),
    makeKey({ id: 'expired', expires: '2026-05-01T00:00:00Z' }),
    makeKey({ id: 'frozen', account: 'icy' }),
  ];
  const file = { version: 1, accounts: { icy: { frozen: true } }, keys: keys.map(({ stored }) => stored) } as const;
  const identity = new KeyFileIdentity(file, 'development', { now: () => NOW });
  t.match(identity.ofKey('good', 'acme'), { kind: 'caller', keyId: 'good' });
  t.match(identity.ofKey('revoked', 'acme'), { code: 'revoked_api_key' });
  t.match(identity.ofKey('expired', 'acme'), { code: 'expired_api_key' });
  t.match(identity.ofKey('frozen', 'icy'), { code: 'account_frozen' });
  t.equal(identity.ofKey('gone', 'acme'), undefined, 'its account has another key');
  t.match(identity.ofKey('gone', 'icy'), { code: 'invalid_api_key' }, 'its account has none in force');
});

t.test('every credential costs one hash and one lookup, whatever the result', async (t) => {
  const good = makeKey();
  const revoked = makeKey({ revoked: '2026-05-01T00:00:00Z' });
  const expired = makeKey({ expires: '2026-05-01T00:00:00Z' });
  const frozen = makeKey({ account: 'icy' });
  const keys = [good, revoked, expired, frozen].map(({ stored }) => stored);
  const file = { version: 1, accounts: { icy: { frozen: true } }, keys } as const;
  const identity = new KeyFileIdentity(file, 'development', { now: () => NOW });
  const credentials = [
    ...[good, revoked, expired, frozen].map(({ key }) => `Bearer ${key}`),
    // A key that differs only at its end, an unknown one, and none.
    `Bearer ${good.key.slice(0, -1)}_`,
    `Bearer ${makeKey().key}`,
    `Bearer ${'x'.repeat(100_000)}`,
    `Basic ${good.key}`,
    '',
    undefined,
  ];
  for (const [i, authorization] of credentials.entries()) {
    await identity.resolve(sends(authorization));
    t.equal(identity.lookups, i + 1, String(authorization).slice(0, 20));
  }
});

t.test('a credential without a key is refused, even if the hash of the empty string is in the file', async (t) => {
  const { stored } = makeKey({ hash: hashKey('') });
  const identity = new KeyFileIdentity({ version: 1, keys: [stored] }, 'development', { now: () => NOW });
  for (const authorization of [undefined, '', 'Bearer', 'Bearer '])
    t.match(await identity.resolve(sends(authorization)), { code: 'invalid_api_key' });
});

t.test('other reasons to refuse a key', async (t) => {
  t.equal(await code({ revoked: '2026-05-01T00:00:00Z' }), 'revoked_api_key');
  t.equal(await code({ expires: '2026-06-01T00:00:00Z' }), 'expired_api_key', 'from that millisecond on');
  t.equal(await code({ expires: '2026-06-01T00:00:00.001Z' }), 'caller');
  t.equal(await code({ revoked: '2026-05-01T00:00:00Z', expires: '2026-05-01T00:00:00Z' }), 'revoked_api_key');
  t.equal(await code({}, { accounts: { acme: { frozen: true } } }), 'account_frozen');
  t.equal(await code({}, { accounts: { acme: {}, other: { frozen: true } } }), 'caller');
  const { stored, key } = makeKey();
  const { id, hash, created, entitlements } = stored;
  const identity = new KeyFileIdentity({ version: 1, keys: [{ id, hash, created, entitlements }] }, 'development', {
    now: () => NOW,
  });
  t.match(await identity.resolve(sends(`Bearer ${key}`)), { code: 'unattributed_key' });
});

t.test('entitlements are those of the environment only', async (t) => {
  const entitlements = {
    development: { models: 'all' as const },
    production: { models: ['a', 'b'], routes: ['chat' as const] },
  };
  const caller = await ask({ entitlements }, {}, 'production');
  if (caller.kind === 'denied') throw new Error(caller.code);
  t.ok(mayCall(caller.models, 'a'));
  t.notOk(mayCall(caller.models, 'c'));
  t.ok(mayUse(caller, 'chat'));
  t.notOk(mayUse(caller, 'decisions'));

  const elsewhere = await ask({ entitlements }, {}, 'staging');
  if (elsewhere.kind === 'denied') throw new Error(elsewhere.code);
  t.notOk(mayCall(elsewhere.models, 'a'));
  t.match(await ask({}, {}, 'constructor'), { models: new Set() });

  const pilots = {
    development: {
      models: 'all' as const,
      cohort: 'pilots',
      tokensPerDay: 5,
      tokensPerMonth: 50,
      tiers: ['flex'] as const,
    },
  };
  t.match(await ask({ entitlements: pilots }), {
    cohort: 'pilots',
    tokensPerDay: 5,
    tokensPerMonth: 50,
    tiers: new Set(['flex']),
  });
  const { key, stored } = makeKey({ account: 'acme' });
  const file = { version: 1 as const, keys: [stored], accounts: { acme: { tokensPerMinute: 7 } } };
  // As a part of a large file.
  const [part = file] = KEYS.parts(file);
  t.match(await new KeyFileIdentity(part, 'development').resolve(sends(`Bearer ${key}`)), {
    accountTokens: { tokensPerMinute: 7 },
  });
});

t.test('a model of a cohort is open to its keys, and to callers of a gateway', async (t) => {
  const caller: Caller = {
    kind: 'caller',
    account: 'acme',
    keyId: 'k',
    environment: 'development',
    models: 'all',
    weight: 4,
  };
  t.ok(inCohort(caller, undefined));
  t.notOk(inCohort(caller, 'pilots'));
  t.notOk(inCohort({ ...caller, cohort: 'sailors' }, 'pilots'));
  t.ok(inCohort({ ...caller, cohort: 'pilots' }, 'pilots'));
  t.ok(inCohort({ ...caller, cohort: 'pilots' }, undefined));
  t.ok(inCohort({ ...caller, vouched: true }, 'pilots'));
});

const A = makeKey({ id: 'a' });
const B = makeKey({ id: 'b' });
/** The least time between two reads for the same reason (followed-file.ts). */
const READ_EVERY_MS = 100;
/** Longer than any test: changes are found by events, or with the fake clock. */
const NEVER_MS = 600_000;

class Watched {
  readonly dir: string;
  readonly file: string;
  /** The hooks that were called, in order. */
  readonly said: (number | string)[] = [];
  readonly #news = new EventEmitter();
  #keys: WatchedKeys | undefined;

  private constructor(dir: string, file: string) {
    this.dir = dir;
    this.file = join(dir, file);
  }

  /**
   * A watch in its own folder, with these keys at first; undefined: no file. `linked`: the file is a link into another
   * folder.
   */
  static async open(
    t: Test,
    keys: readonly StoredKey[] | undefined,
    { clock = systemClock, file = 'keys.json', pollMs = NEVER_MS, linked = false } = {},
  ): Promise<Watched> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-watch-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    // Neither the watch nor the clock keeps a process alive; a sidecar has its sockets.
    const alive = setInterval(() => undefined, NEVER_MS);
    t.teardown(() => clearInterval(alive));
    const watched = new Watched(dir, file);
    const real = join(dir, 'mounted', 'real.json');
    if (keys) await writeKeyFile(linked ? real : watched.file, { version: 1, keys });
    if (linked) await symlink(real, watched.file);
    await watched.#follow(t, clock, pollMs);
    return watched;
  }

  async #follow(t: Test, clock: Clock, pollMs: number): Promise<void> {
    const say = (what: number | string): void => {
      this.said.push(what);
      this.#news.emit('said');
    };
    this.#keys = await WatchedKeys.open(
      clock,
      { file: this.file, environment: 'development', pollMs, development: false },
      { loaded: say, closed: (accounts) => say(`closed ${accounts.join()}`), refused: say },
    );
    t.teardown(() => this.#keys?.close());
  }

  get keys(): WatchedKeys {
    if (!this.#keys) throw new Error('not open');
    return this.#keys;
  }

  ask({ key }: { readonly key: string }): Promise<Caller | Denied> {
    return this.keys.resolve(sends(`Bearer ${key}`));
  }

  put(...keys: readonly StoredKey[]): Promise<void> {
    return writeKeyFile(this.file, { version: 1, keys });
  }

  /** Resolves once so many hooks were called in all. */
  async saidSoFar(count: number): Promise<void> {
    while (this.said.length < count) await once(this.#news, 'said');
  }
}

t.test('a replaced file is used at once, and callers that were resolved before stay unchanged', async (t) => {
  const watched = await Watched.open(t, [A.stored]);
  t.strictSame(watched.said, [1]);
  const before = await watched.ask(A);
  t.match(await watched.ask(B), { code: 'invalid_api_key' });
  await watched.put({ ...A.stored, revoked: '2026-01-02T00:00:00Z' }, B.stored);
  await watched.saidSoFar(2);
  t.strictSame(watched.said, [1, 2]);
  t.match(await watched.ask(A), { code: 'revoked_api_key' });
  t.match(await watched.ask(B), { kind: 'caller', keyId: 'b' });
  t.match(before, { kind: 'caller', keyId: 'a', models: 'all' });
});

t.test('an account that loses its last key, or is frozen, is reported once', async (t) => {
  const keys = ['acme', 'globex', 'initech'].map((account) => makeKey({ id: account, account }).stored);
  const [acme, globex, initech] = keys as [StoredKey, StoredKey, StoredKey];
  const watched = await Watched.open(t, [acme, globex, initech, { ...acme, id: 'second', hash: A.stored.hash }]);
  await watched.put(acme, initech);
  await watched.saidSoFar(3);
  const revoked = { ...acme, revoked: '2026-02-01T00:00:00Z' };
  await writeKeyFile(watched.file, { version: 1, accounts: { initech: { frozen: true } }, keys: [revoked, initech] });
  await watched.saidSoFar(5);
  await writeKeyFile(watched.file, { version: 1, keys: [acme, initech] });
  await watched.saidSoFar(6);
  t.strictSame(watched.said, [4, 'closed globex', 2, 'closed acme,initech', 2, 2]);
});

t.test('a file that is created later, by a rename or with its folder', async (t) => {
  const watched = await Watched.open(t, undefined);
  t.strictSame(watched.said, [0]);
  const elsewhere = join(watched.dir, 'draft');
  await writeKeyFile(elsewhere, { version: 1, keys: [A.stored] });
  await rename(elsewhere, watched.file);
  await watched.saidSoFar(2);
  t.match(await watched.ask(A), { keyId: 'a' });

  const clock = new FakeClock();
  const folderless = await Watched.open(t, undefined, { clock, file: join('later', 'keys.json'), pollMs: NEVER_MS });
  await folderless.put(A.stored);
  clock.advance(NEVER_MS);
  await folderless.saidSoFar(2);
  t.match(await folderless.ask(A), { keyId: 'a' }, 'the poll found it');
  await folderless.put(B.stored);
  while (folderless.said.length < 3) {
    // From now on the folder’s own events arrive, long before the next poll.
    clock.advance(1);
    await new Promise((resolve) => setImmediate(resolve));
    if (clock.now() >= 2 * NEVER_MS) throw new Error('no event came');
  }
  t.match(await folderless.ask(B), { keyId: 'b' });
});

t.test('a key that was just created is valid at its first request, without an event or a poll', async (t) => {
  const clock = new FakeClock();
  const watched = await Watched.open(t, [A.stored], { clock, pollMs: NEVER_MS, linked: true });
  await watched.put(A.stored, B.stored);
  t.match(await watched.ask(B), { kind: 'caller', keyId: 'b' });
  t.match(await watched.ask(A), { kind: 'caller', keyId: 'a' });
  t.equal(clock.pending, 1, 'only the poll is left');
});

t.test('so is a key at the end of a long file, which is read in a thread', async (t) => {
  const clock = new FakeClock();
  const watched = await Watched.open(t, [A.stored], { clock, pollMs: NEVER_MS, linked: true });
  const many = Array.from({ length: 1500 }, (_, i) => makeKey({ id: `key-${i}`, account: `account-${i}` }).stored);
  await watched.put(A.stored, ...many, B.stored);
  const asked = watched.ask(B);
  while (clock.pending < 2) await new Promise((resolve) => setImmediate(resolve));
  clock.advance(4999);
  t.match(await asked, { kind: 'caller', keyId: 'b' });
  t.match(await watched.ask(A), { kind: 'caller', keyId: 'a' });
  await watched.put(A.stored, ...many.slice(1), B.stored);
  await watched.keys.reload();
  t.strictSame(watched.said, [1, 1502, 'closed account-0', 1501]);
});

t.test('unknown keys cause at most ten checks of the file a second, however many come', async (t) => {
  const clock = new FakeClock();
  const watched = await Watched.open(t, [A.stored], { clock, pollMs: NEVER_MS, linked: true });
  t.match(await watched.ask(B), { code: 'invalid_api_key' });
  await watched.put(A.stored, B.stored);
  const flood = await Promise.all(Array.from({ length: 1000 }, () => watched.ask(B)));
  t.ok(
    flood.every((answer) => answer.kind === 'denied'),
    'not checked again',
  );
  clock.advance(99);
  t.match(await watched.ask(B), { code: 'invalid_api_key' });
  clock.advance(1);
  const after = await Promise.all(Array.from({ length: 1000 }, () => watched.ask(B)));
  t.ok(
    after.every((answer) => answer.kind === 'caller'),
    'all wait for the one check',
  );
  t.strictSame(watched.said, [1, 2], 'and the file is read once');
});

t.test('it reports which content is in force, after a look at the file', async (t) => {
  const clock = new FakeClock();
  const watched = await Watched.open(t, undefined, { clock });
  const look = (): Promise<object> => {
    clock.advance(READ_EVERY_MS);
    return watched.keys.inForce();
  };
  t.strictSame(await look(), { file: watched.file, sha256: 'none', keys: 0 });
  await watched.put(A.stored, B.stored);
  const sha256 = await signOfKeyFile(watched.file);
  t.match(sha256, /^[0-9a-f]{64}$/);
  t.strictSame(await look(), { file: watched.file, sha256, keys: 2 });
  await writeFile(watched.file, '{');
  t.strictSame(await look(), { file: watched.file, sha256, keys: 2, problem: 'is not JSON' });
  await watched.put(A.stored, B.stored);
  t.strictSame(await look(), { file: watched.file, sha256, keys: 2 }, 'as before');
});

t.test('keys that are not current do not say that there is no such key', async (t) => {
  const revoked = makeKey({ id: 'old', account: 'gone', revoked: '2026-05-01T00:00:00Z' });
  const { keys } = await Watched.open(t, [A.stored, revoked.stored]);
  const of = (id: string) => keys.ofKey(id, 'gone');
  t.match(of('other'), { code: 'invalid_api_key' });
  keys.isCurrent = () => false;
  t.equal(of('other'), undefined);
  t.match(of('old'), { code: 'revoked_api_key' });
});
