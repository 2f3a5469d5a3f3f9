/**
 * The store's functions for prepaid credit (sidecar/store/migrations/credit.ts) on a real PostgreSQL, called by models of replicas: answers
 * get lost, calls arrive late, replicas are killed, an earlier state of the store is restored. Sums are exact throughout.
 */
import fc from 'fast-check';
import pg from 'pg';
import t, { type Test } from 'tap';
import { rounds } from '../../support/long-form.js';
import { eventually } from '../../support/processes.js';
import { sharedPostgres } from '../../support/postgres.js';

const ACCOUNTS = ['acme', 'globex'] as const;
type Account = (typeof ACCOUNTS)[number];
const GRANTED = 1000n;
const TABLES = ['account', 'charge', 'escrow', 'spool_position', 'replica'] as const;

/** What becomes of a call: `lost`: it runs and its answer does not arrive; `late`: it arrives after others. */
type Fate = 'answered' | 'lost' | 'late';
type Row = Readonly<Record<string, string>>;

class Store {
  readonly #sidecar: pg.Client;
  readonly #owner: pg.Client;

  constructor(sidecar: pg.Client, owner: pg.Client) {
    this.#sidecar = sidecar;
    this.#owner = owner;
  }

  static async open(t: Test): Promise<Store> {
    const server = await sharedPostgres();
    const { name } = await server.database();
    const sidecar = new pg.Client({ host: server.socket, user: 'ra_replica', database: name });
    await sidecar.connect();
    const owner = await server.connect(name);
    t.teardown(() => Promise.all([sidecar.end(), owner.end()]));
    const copies = TABLES.map((table) => `create table saved_${table} (like ra_sidecar.${table})`);
    await owner.query(copies.join(';'));
    return new Store(sidecar, owner);
  }

  async call(fn: string, args: readonly unknown[]): Promise<Row> {
    const places = args.map((_, i) => `$${i + 1}`).join();
    const { rows } = await this.#sidecar.query<Row>(`select * from ra_sidecar.${fn}(${places})`, [...args]);
    return rows[0] ?? {};
  }

  /** Runs statements as the owner. */
  async sql(text: string): Promise<void> {
    await this.#owner.query(text);
  }

  /** The payloads of all notifications on a channel from now on. */
  async notified(channel: string): Promise<string[]> {
    const told: string[] = [];
    this.#owner.on('notification', ({ payload = '' }) => told.push(payload));
    await this.sql(`listen ${channel}`);
    return told;
  }

  async reset(): Promise<void> {
    await this.#owner.query(`truncate ${TABLES.map((table) => `ra_sidecar.${table}`).join()}`);
    for (const account of ACCOUNTS)
      await this.#owner.query('insert into ra_sidecar.account (name, granted) values ($1, $2)', [
        account,
        `${GRANTED}`,
      ]);
    await this.save();
  }

  async save(): Promise<void> {
    const copied = TABLES.map(
      (table) => `truncate saved_${table}; insert into saved_${table} table ra_sidecar.${table}`,
    );
    await this.#owner.query(copied.join(';'));
  }

  async restore(): Promise<void> {
    const copied = TABLES.map(
      (table) =>
        `truncate ra_sidecar.${table}; insert into ra_sidecar.${table} overriding system value table saved_${table}`,
    );
    await this.#owner.query(copied.join(';'));
  }

  /** What is wrong with its sums; `exact`: no draw was lost. */
  async problem(exact: boolean): Promise<string | undefined> {
    const { rows } = await this.#owner.query<Record<string, string>>(`
      select name, granted - settled - held as free, held, uncovered, settled,
        (select coalesce(sum(drawn - posted), 0) from ra_sidecar.escrow where account = name) as escrows,
        (select coalesce(min(drawn - posted), 0) from ra_sidecar.escrow where account = name) as least,
        (select coalesce(sum(amount), 0) from ra_sidecar.charge where account = name) as charges
      from ra_sidecar.account`);
    for (const row of rows) {
      const of = (name: string): bigint => BigInt(row[name] ?? '0');
      if (of('held') !== of('escrows')) return `${row['name']}: ${of('held')} held of ${of('escrows')}`;
      if (of('settled') !== of('charges')) return `${row['name']}: ${of('settled')} settled of ${of('charges')}`;
      if (of('least') < 0n) return `${row['name']}: an escrow below 0`;
      if (exact && (of('free') < 0n || of('uncovered') > 0n)) return `${row['name']}: ${of('free')} free`;
    }
    return undefined;
  }

  async account(name: Account): Promise<{ settled: bigint; held: bigint }> {
    const { rows } = await this.#owner.query<Record<string, string>>(
      'select settled, held from ra_sidecar.account where name = $1',
      [name],
    );
    return { settled: BigInt(rows[0]?.['settled'] ?? 0), held: BigInt(rows[0]?.['held'] ?? 0) };
  }
}

interface Purse {
  drawn: bigint;
  settled: bigint;
  returning: bigint;
  reserved: bigint[];
}

let ids = 0;

/** One data folder: its spool, and the process that runs with it. */
class Model {
  readonly #store: Store;
  readonly #id: string;
  /** Closes, by account and price; the position is an index. */
  readonly spool: { readonly id: string; readonly account: Account; readonly amount: bigint }[] = [];
  #no = 0;
  #epoch = 0;
  #run = 0;
  #seq = 0;
  #begin = 0;
  #posted = 0;
  #purses = new Map<Account, Purse>();
  #late: (() => Promise<unknown>)[] = [];

  constructor(store: Store, id: string) {
    this.#store = store;
    this.#id = id;
  }

  #purse(account: Account): Purse {
    const found = this.#purses.get(account) ?? { drawn: 0n, settled: 0n, returning: 0n, reserved: [] };
    this.#purses.set(account, found);
    return found;
  }

  inHand(account: Account): bigint {
    const { drawn, settled, returning, reserved } = this.#purse(account);
    return drawn - settled - returning - reserved.reduce((sum, one) => sum + one, 0n);
  }

  /** A process begins: what the one before ran is closed at a part of its price. */
  async start(percent = 50n): Promise<void> {
    for (const [account, { reserved }] of this.#purses)
      for (const amount of reserved) this.#close(account, (amount * percent) / 100n);
    this.#purses = new Map();
    this.#seq = 0;
    this.#epoch = 0;
    await this.#join();
    this.#run = this.#epoch;
    this.#begin = this.spool.length;
    await this.open();
  }

  /** Posts what is of earlier runs, then opens this one. */
  async open(): Promise<void> {
    const at = await this.#store.call('open_position', [this.#no, this.#epoch, 1, this.#begin]);
    if (at['outcome'] !== 'opened') throw new Error(`open_position: ${at['outcome']}`);
    this.#posted = Number(at['byte']);
    while (this.#posted < this.#begin) await this.post('answered', Math.min(this.#posted + 2, this.#begin));
    const opened = await this.#store.call('open_escrow', [this.#no, this.#epoch, this.#run, 1, this.#posted, null]);
    if (opened['outcome'] !== 'open') throw new Error(`open_escrow: ${opened['outcome']}`);
  }

  /** What the next beat does after an earlier state was restored. */
  async rejoin(): Promise<void> {
    await this.#join();
    await this.open();
    for (const account of ACCOUNTS) await this.giveBack(account, 'answered', 0n);
  }

  async #join(): Promise<void> {
    const joined = await this.#store.call('join_fleet', [this.#id, 'host', '1', this.#epoch, 60_000]);
    this.#no = Number(joined['no']);
    this.#epoch = Number(joined['epoch']);
  }

  #close(account: Account, amount: bigint): void {
    ids += 1;
    const id = `00000000-0000-4000-8000-${String(ids).padStart(12, '0')}`;
    if (amount > 0n) this.spool.push({ id, account, amount });
  }

  async #sent(fate: Fate, fn: string, args: readonly unknown[]): Promise<Row | undefined> {
    if (fate === 'late') {
      this.#late.push(() => this.#store.call(fn, args));
      return undefined;
    }
    const row = await this.#store.call(fn, args);
    return fate === 'answered' ? row : undefined;
  }

  #args(): readonly unknown[] {
    this.#seq += 1;
    return [this.#no, this.#epoch, this.#run, this.#seq];
  }

  async draw(account: Account, need: bigint, chunk: bigint, fate: Fate): Promise<void> {
    const before = this.inHand(account);
    if (before < need) {
      const args = [...this.#args(), account, `${before}`, [`${need}`], `${chunk}`, false];
      const row = await this.#sent(fate, 'draw', args);
      if (row) {
        Object.assign(this.#purse(account), { drawn: BigInt(row['drawn'] ?? 0), returning: 0n });
        if (row['outcome'] === 'drawn' && this.inHand(account) < need) throw new Error('drawn too little');
      }
    }
    if (this.inHand(account) >= need) this.#purse(account).reserved.push(need);
  }

  settle(account: Account, percent: bigint): void {
    const purse = this.#purse(account);
    const reserved = purse.reserved.shift();
    if (reserved === undefined) return;
    const actual = (reserved * percent) / 100n;
    purse.settled += actual;
    this.#close(account, actual);
  }

  async giveBack(account: Account, fate: Fate, amount = this.inHand(account)): Promise<void> {
    if (amount < 0n) return;
    const purse = this.#purse(account);
    purse.returning += amount;
    const row = await this.#sent(fate, 'return_escrow', [...this.#args(), [account], [`${amount}`]]);
    if (row?.['drawn'] !== undefined) Object.assign(purse, { drawn: BigInt(row['drawn']), returning: 0n });
  }

  async post(fate: Fate, to = this.spool.length): Promise<void> {
    const part = this.spool.slice(this.#posted, to);
    const row = await this.#sent(fate, 'post', [
      ...[this.#no, this.#epoch, 1, this.#posted, 1, to],
      part.map(({ id }) => id),
      part.map(({ account }) => account),
      part.map(({ amount }) => `${amount}`),
    ]);
    if (row) this.#posted = Number(row['byte']);
  }

  get hasLate(): boolean {
    return this.#late.length > 0;
  }

  async deliver(): Promise<void> {
    await this.#late.shift()?.();
  }
}

const STEPS = fc.array(
  fc.record({
    act: fc.constantFrom(
      'draw',
      'draw',
      'draw',
      'settle',
      'settle',
      'return',
      'post',
      'deliver',
      'kill',
      'save',
      'restore',
    ),
    replica: fc.nat({ max: 2 }),
    account: fc.constantFrom(...ACCOUNTS),
    fate: fc.constantFrom<Fate>('answered', 'answered', 'answered', 'lost', 'late'),
    amount: fc.bigInt({ min: 1n, max: 200n }),
    chunk: fc.bigInt({ min: 0n, max: 300n }),
    percent: fc.bigInt({ min: 0n, max: 100n }),
  }),
  { minLength: 20, maxLength: 60 },
);

/** Runs steps, then kills and starts all replicas. */
async function walk(t: Test, mayRestore: boolean, runs: number): Promise<void> {
  const store = await Store.open(t);
  let requests = 0;
  await fc.assert(
    fc.asyncProperty(STEPS, async (steps) => {
      await store.reset();
      const replicas = ['a', 'b', 'c'].map((id) => new Model(store, id));
      for (const replica of replicas) await replica.start();
      // A store that does not know a replica has lost what it had posted.
      await store.save();
      let exact = true;
      for (const { act, replica: which, account, fate, amount, chunk, percent } of steps) {
        const replica = replicas[which] as Model;
        if (act === 'draw') await replica.draw(account, amount, chunk, fate);
        else if (act === 'settle') replica.settle(account, percent);
        else if (act === 'return') await replica.giveBack(account, fate);
        else if (act === 'post') await replica.post(fate);
        else if (act === 'deliver') await replica.deliver();
        else if (act === 'kill') await replica.start(percent);
        else if (act === 'save') await store.save();
        else if (mayRestore) {
          exact = false;
          await store.restore();
          for (const each of replicas) await each.rejoin();
        }
        const problem = await store.problem(exact);
        if (problem !== undefined) throw new Error(`after ${act}: ${problem}`);
      }
      for (const replica of replicas) await replica.start();
      for (const replica of replicas) while (replica.hasLate) await replica.deliver();
      const closes = replicas.flatMap(({ spool }) => spool);
      requests += closes.length;
      for (const account of ACCOUNTS) {
        const spent = closes
          .filter((close) => close.account === account)
          .reduce((sum, close) => sum + close.amount, 0n);
        const { settled, held } = await store.account(account);
        if (settled !== spent || held !== 0n)
          throw new Error(`${account}: ${settled} of ${spent} settled, ${held} held`);
        if (exact && spent > GRANTED) throw new Error(`${account}: ${spent} spent`);
      }
    }),
    { numRuns: runs, endOnFailure: true, includeErrorInReport: true },
  );
  t.ok(requests > runs, `${requests} charges`);
}

t.test('lost answers, late calls and kills: nothing is overspent, and the sums are exact', async (t) => {
  await walk(t, false, rounds({ short: 7, long: 1000 }));
});

t.test('an earlier state of the store is restored: charges are never lost or counted twice', async (t) => {
  await walk(t, true, rounds({ short: 5, long: 1000 }));
});

t.test('an earlier start of a replica changes nothing once another has begun', async (t) => {
  const store = await Store.open(t);
  await store.reset();
  const [zombie, next] = [new Model(store, 'a'), new Model(store, 'a')];
  await zombie.start();
  await zombie.draw('acme', 100n, 0n, 'answered');
  t.equal(zombie.inHand('acme'), 0n);
  await next.start();
  t.match(await store.account('acme'), { held: 0n }, 'its escrow is given back');
  zombie.settle('acme', 100n);
  await zombie.post('answered');
  await zombie.giveBack('acme', 'answered');
  await zombie.draw('acme', 10n, 0n, 'answered');
  t.match(await store.account('acme'), { held: 0n, settled: 0n });
  await next.draw('acme', 10n, 0n, 'answered');
  t.match(await store.account('acme'), { held: 10n });
});

t.test('a run opens beside many spent escrows: some are removed at a time, and no account is locked', async (t) => {
  const store = await Store.open(t);
  await store.reset();
  const earlier = new Model(store, 'a');
  await earlier.start();
  await earlier.draw('acme', 100n, 0n, 'answered');
  await store.sql(`
    insert into ra_sidecar.escrow
      select no, n::text, 1, 1, 0 from ra_sidecar.replica, generate_series(1, 10000) n where id = 'a';
    insert into ra_sidecar.escrow select no, 'globex', 1, 1, 0 from ra_sidecar.replica where id = 'a'`);
  const { no, epoch } = await store.call('join_fleet', ['a', 'host', '1', 0, 60_000]);
  await store.call('open_position', [no, epoch, 1, 0]);
  const open = (): Promise<Row> => store.call('open_escrow', [no, epoch, epoch, 1, 0, null]);
  t.strictSame(await open(), {}, 'to be called again');
  t.match(await store.account('acme'), { held: 100n });
  await store.sql(`begin; select 1 from ra_sidecar.account where name = 'globex' for update`);
  t.match(await open(), { outcome: 'open', released: '100' });
  await store.sql('commit');
  t.match(await store.account('acme'), { held: 0n });
  t.equal(await store.problem(true), undefined);
});

t.test('a draw that arrives after a later one which got nothing draws nothing', async (t) => {
  const store = await Store.open(t);
  await store.reset();
  const replica = new Model(store, 'a');
  await replica.start();
  await replica.draw('acme', 100n, 0n, 'late');
  await replica.draw('acme', GRANTED + 1n, 0n, 'answered');
  await replica.deliver();
  t.match(await store.account('acme'), { held: 0n });
});

t.test('of an account that is short the other replicas are asked once in 250 ms', async (t) => {
  const store = await Store.open(t);
  await store.reset();
  const told = await store.notified('ra_sidecar_recall');
  const [holds, ...asks] = await Promise.all(
    ['a', 'b', 'c'].map(async (id) => {
      const { no, epoch } = await store.call('join_fleet', [id, 'host', '1', 0, 60_000]);
      await store.call('open_position', [no, epoch, 1, 0]);
      await store.call('open_escrow', [no, epoch, epoch, 1, 0, null]);
      let seq = 0;
      return async (account: Account, need: bigint): Promise<string | undefined> =>
        (await store.call('draw', [no, epoch, epoch, (seq += 1), account, 0, [`${need}`], 0, true]))['outcome'];
    }),
  );
  for (const account of ACCOUNTS) t.equal(await holds?.(account, 1n), 'drawn');
  // The time of the last question is moved, so that the test need not wait.
  const short = async (ask: number, account: Account, asked: string): Promise<string | undefined> => {
    const at = `clock_timestamp() - interval '${asked}'`;
    await store.sql(`update ra_sidecar.account set recalled_at = ${at} where name = '${account}'`);
    return await asks[ask]?.(account, GRANTED);
  };
  t.equal(await short(0, 'acme', '251 ms'), 'recalled');
  t.not(await asks[1]?.('acme', GRANTED), 'recalled');
  for (const ask of [0, 1]) t.equal(await short(ask, 'acme', '100 ms'), 'short');
  t.equal(await short(1, 'globex', '251 ms'), 'recalled', 'of each account');
  await eventually('the other replicas are asked', () => told.length > 1);
  t.strictSame(told, ['acme', 'globex']);
});

t.test('a replica that was written off posts nothing more', async (t) => {
  const store = await Store.open(t);
  await store.reset();
  const replica = new Model(store, 'a');
  await replica.start();
  await replica.draw('acme', 100n, 0n, 'answered');
  replica.settle('acme', 100n);
  // As credit write-off does.
  await store.sql(`
    update ra_sidecar.replica set epoch = epoch + 1 where id = 'a';
    select ra_sidecar.release_escrow(no) from ra_sidecar.replica where id = 'a'`);
  await replica.post('answered');
  t.match(await store.account('acme'), { settled: 0n, held: 0n });
});
