/** What a fleet has used, over three replicas, on a real PostgreSQL. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { usage } from '../../../sidecar/commands/usage.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import type { Database } from '../../../sidecar/store/database.js';
import { changePrices } from '../../../sidecar/store/keys.js';
import type { Replica } from '../../../sidecar/store/replica.js';
import { StoreUsage } from '../../../sidecar/store/usage.js';
import { Totals } from '../../../sidecar/usage/totals.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { eventually } from '../../support/processes.js';
import { replicaAt, sharedPostgres } from '../../support/postgres.js';
import { usageRecord } from '../../support/usage-records.js';

const [DAY, NEXT, AFTER] = ['2026-10-03', '2026-10-04', '2026-10-05'];
/** How soon sums are put, ms. */
const PUT_MS = 5000;

/** A data folder, over its starts. */
interface Folder {
  readonly id: string;
  readonly dir: string;
  readonly spool: MemorySpool;
}

interface Member extends Folder {
  readonly database: Database;
  readonly replica: Replica;
  readonly totals: Totals;
  readonly usage: StoreUsage;
  readonly clock: FakeClock;
}

async function folder(t: Test, id: string): Promise<Folder> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-fleet-usage-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return { id, dir, spool: new MemorySpool() };
}

async function start(t: Test, url: string, at: Folder): Promise<Member> {
  const { database, replica } = await replicaAt(t, url, at.id, { connections: 2 });
  const unexpected = (): void => void t.fail('nothing is damaged');
  const listener = { damaged: unexpected, unwritten: unexpected, unreadable: unexpected, incomplete: unexpected };
  const totals = await Totals.open({ clock: new FakeClock(), spool: at.spool, dir: join(at.dir, 'totals'), listener });
  const clock = new FakeClock();
  const usage = new StoreUsage({ clock, database, replica });
  usage.begin(() => totals);
  t.equal(await replica.begin(), undefined);
  t.teardown(() => usage.close());
  return { ...at, database, replica, totals, usage, clock };
}

/** A request that is durable in the spool. */
function bill({ spool, id }: Folder, account: string, more: Parameters<typeof usageRecord>[2] = {}): void {
  const price = { version: 'v', picodollars: '7' };
  spool.append(
    usageRecord(`${id}-${spool.lines.length}`, 'close', { account, at: `${DAY}T12:00:00.000Z`, price, ...more }),
  );
  spool.flush();
}

/** The requests of an account in two days, by day and key, as one member has them; undefined: it does not know those of the others. */
async function requests(of: Member, account: string): Promise<Record<string, number> | undefined> {
  await of.totals.sums.readOn();
  const others = await of.usage.others(account, DAY, AFTER);
  if (!others) return undefined;
  const sums: Record<string, number> = {};
  for (const day of [DAY, NEXT]) {
    for (const row of [...of.totals.rowsOf(day, account, 'keys'), ...(others.get(day) ?? [])]) {
      const name = `${day} ${row.keyId}`;
      sums[name] = (sums[name] ?? 0) + row.requests;
    }
  }
  return sums;
}

/** All of these members put what they have counted, until the first one has these sums. */
async function until(
  what: string,
  members: readonly Member[],
  account: string,
  wanted: Record<string, number>,
): Promise<void> {
  const sorted = (sums: Record<string, number> = {}): string => JSON.stringify(Object.entries(sums).sort());
  const [of] = members;
  await eventually(what, async () => {
    for (const { clock, replica } of members) {
      replica.hurry();
      clock.advance(PUT_MS);
    }
    return of !== undefined && sorted(await requests(of, account)) === sorted(wanted);
  });
}

t.test('each sidecar answers for all: exact, once, by day and key, with all that a row has', async (t) => {
  const { url } = await (await sharedPostgres()).database();
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map(async (id) => start(t, url, await folder(t, id))));
  if (!a || !b || !c) throw new Error('not started');
  bill(a, 'acme');
  bill(a, 'acme', { keyId: 'key-2', at: `${NEXT}T00:00:00.000Z` });
  bill(a, 'acme', { batch: true });
  bill(b, 'acme', { tier: 'flex' });
  bill(b, 'other');
  bill(c, 'acme', { outcome: 'failed', price: { version: 'v', picodollars: '0' } });
  for (const each of [a, b, c])
    await until('all', [each, a, b, c], 'acme', { [`${DAY} key-1`]: 4, [`${NEXT} key-2`]: 1 });
  await until('another account', [a, b], 'other', { [`${DAY} key-1`]: 1 });
  const rows = (await c.usage.others('acme', DAY, NEXT))?.get(DAY);
  t.strictSame(
    rows,
    [...a.totals.rowsOf(DAY, 'acme', 'keys'), ...b.totals.rowsOf(DAY, 'acme', 'keys')],
    'rows as their sidecars have them',
  );
  t.strictSame(await c.usage.others('nobody', DAY, AFTER), new Map());
  bill(b, 'acme');
  await until('what changes', [a, b], 'acme', { [`${DAY} key-1`]: 5, [`${NEXT} key-2`]: 1 });
  // A sidecar that is gone stays in the sums, with what it counted last.
  bill(b, 'acme');
  await b.totals.sums.readOn();
  await b.usage.close();
  await b.replica.close();
  await b.database.close();
  t.strictSame(await requests(a, 'acme'), { [`${DAY} key-1`]: 6, [`${NEXT} key-2`]: 1 });
});

t.test('usage export --fleet: the sums that all sidecars have put, by day', async (t) => {
  const { url } = await (await sharedPostgres()).database();
  const [a, b] = await Promise.all(['a', 'b'].map(async (id) => start(t, url, await folder(t, id))));
  if (!a || !b) throw new Error('not started');
  // The days are those up to the present one.
  const at = new Date().toISOString();
  bill(a, 'acme', { at });
  bill(b, 'acme', { at });
  bill(b, 'other', { at });
  for (const each of [a, b]) {
    await each.totals.sums.readOn();
    await each.usage.close();
  }
  const loaded = loadConfig({ RA_STORE_URL: url, RA_DATA_DIR: join(a.dir, 'none') });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  let { config } = loaded;
  const err = (said: string): void => void t.fail(said);
  const exported = async (...more: string[]): Promise<(string | undefined)[][]> => {
    let text = '';
    const out = new Writable({
      write: (part, _, done) => {
        text += String(part);
        done();
      },
    });
    t.equal(await usage(config, ['export', '--fleet', '--format', 'focus', ...more], { out, err }), 0);
    const [head = '', ...lines] = text.trimEnd().split('\n');
    const names = head.split(',');
    const wanted = ['SubAccountId', 'BilledCost', 'ChargePeriodStart'].map((name) => names.indexOf(name));
    return lines.map((line) => wanted.map((i) => line.split(',')[i]));
  };
  const row = (account: string): string[] => [account, '0.000000000007', `${at.slice(0, 10)}T00:00:00Z`];
  t.strictSame(await exported(), [row('acme'), row('acme'), row('other')]);
  t.strictSame(await exported('--account', 'other'), [row('other')]);
  t.strictSame(await exported('--to', at.slice(0, 10)), []);
  await t.rejects(usage(config, ['export', '--fleet'], { out: new Writable(), err }), {
    message: /needs --format focus/,
  });
  await t.rejects(exported('--from', `${at.slice(0, 10)}T12:00:00Z`), { message: /needs days/ });
  // No sidecar has run with this data folder, which would have a copy of the store's prices.
  config = { ...config, pricing: { ...config.pricing, source: 'store' } };
  t.strictSame(await exported('--account', 'other'), [row('other')], 'none are in the store yet');
  const { database } = await replicaAt(t, url, 'operator');
  const [input, cachedInput, output] = ['1', '1', '7'];
  const chat = Object.fromEntries(config.models.map(({ id }) => [id, { input, cachedInput, output }]));
  const prices = [{ version: 'v', effective: '2026-01-01T00:00:00Z', decisions: '0', chat }];
  await changePrices(database, JSON.stringify({ version: 1, prices }), '', 'test');
  t.strictSame(await exported('--account', 'other'), [row('other')]);
});

t.test('kills, lost answers and restores of the store change no sum', async (t) => {
  /** By the first of two sidecars, of which a restore loses all that was put. */
  const at = <T extends string>(step: T): [number, T, number] => [0, step, 2];
  const server = await sharedPostgres();
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(1), fc.constantFrom('bill', 'put', 'kill', 'lose', 'restore', 'forget'), fc.nat(2)), {
        maxLength: 12,
      }),
      async (steps) => {
        const { url, name } = await server.database();
        const members = await Promise.all(['a', 'b'].map(async (id) => start(t, url, await folder(t, id))));
        const wanted: Record<string, number> = {};
        for (const [at, step, key] of steps) {
          const member = members[at] as Member;
          if (step === 'bill') {
            bill(member, 'acme', { keyId: `key-${key}` });
            wanted[`${DAY} key-${key}`] = (wanted[`${DAY} key-${key}`] ?? 0) + 1;
          } else if (step === 'put') {
            await until('put', [member, ...members], 'acme', wanted);
          } else if (step === 'kill') {
            await member.database.close();
            members[at] = await start(t, url, member);
          } else if (step === 'lose') {
            const call = member.database.call.bind(member.database);
            member.database.call = async (fn, args, options) => {
              if (fn !== 'put_usage') return call(fn, args, options);
              member.database.call = call;
              // It has an effect, or none.
              if (key > 0) await call(fn, args, options);
              return { kind: 'down', why: 'timeout', retryAfterMs: 1, sent: true };
            };
          } else if (step === 'forget') {
            // As of a sidecar that was gone for a week.
            await server.sql(`delete from ra_sidecar.replica where id = '${member.id}'`, name);
          } else {
            await server.sql(`delete from ra_sidecar.usage_day where replica <= '${'0ab'[key]}'`, name);
            await server.sql(`update ra_sidecar.replica set epoch = 0`, name);
          }
        }
        for (const member of members) await until('exact', [member, ...members], 'acme', wanted);
      },
    ),
    {
      numRuns: rounds({ short: 4, long: 60 }),
      endOnFailure: true,
      examples: [
        [[at('bill'), [1, 'put', 0], at('restore'), [1, 'put', 0]]],
        [[[0, 'lose', 0], at('bill'), [1, 'put', 0], at('forget')]],
      ],
    },
  );
});

t.test('an earlier process of a data folder changes nothing; without the store nothing is known', async (t) => {
  const server = await sharedPostgres();
  const { url } = await server.database();
  const [at, other] = [await folder(t, 'a'), await start(t, url, await folder(t, 'b'))];
  const zombie = await start(t, url, at);
  bill(at, 'acme');
  await until('put', [other, zombie], 'acme', { [`${DAY} key-1`]: 1 });
  const { no = 0, epoch = 0 } = zombie.replica.session ?? {};
  await start(t, url, at);
  t.strictSame(await zombie.database.call('put_usage', [no, epoch, ['acme'], [DAY], ['[]']]), {
    kind: 'rows',
    rows: [],
  });
  await until('as it was', [other, zombie], 'acme', { [`${DAY} key-1`]: 1 });
  const many = await Promise.all(Array.from({ length: 40 }, () => other.usage.others('acme', DAY, AFTER)));
  t.equal(many.filter((each) => each === undefined).length, 8, 'no more than 32 questions wait');
  await other.database.close();
  t.equal(await other.usage.others('acme', DAY, AFTER), undefined);
  const apart = await replicaAt(t, url, 'apart');
  t.equal(
    await new StoreUsage({ clock: new FakeClock(), ...apart }).others('acme', DAY, AFTER),
    undefined,
    'never joined',
  );
});
