/**
 * Prepaid credit of a fleet (migrations/credit.ts). Of each account that pays for requests here, this replica has an escrow in the
 * store, and runs its ledger on that:
 *
 *     in hand = drawn − settled − reserved − being returned
 *
 * A request is admitted without a call of the store if what the sidecar has in hand covers it. Before that runs out, the sidecar draws more in
 * the background: what it reserved in the last seconds, or a share of what the account has left. What no request needed for {@link WINDOW_MS} is returned.
 *
 *     reserve ──covered──> reserved
 *        └──> waiting ──draw──> reserved, or short ──others return what they do not use──> draw ──> reserved, insufficient
 *
 * Where two replicas are short at once, the one that was first keeps what it has, and the other one returns that before it draws again.
 * So a request pays with the account's last dollar, wherever that is in hand. Requests of an account that wait are served in their order, by
 * one call at a time. The store counts a recall of an account once in 250 ms; for that long an account that was short is refused here.
 *
 * The escrow is used while the lease runs by this process's clock, and this run is open at the store (posting.ts). Each answer of the store
 * has all that was drawn, so that a lost answer, or a draw that a failover lost, is made good by the next one.
 */
import type { Balance, Credit, Reservation, Reserved } from '../access/credit.js';
import { every, type Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import type { Database } from './database.js';
import type { Posting, PostedSpool } from './posting.js';
import { chunkOf, hold, inHand, isShort, Purse, sink, type Waiting } from './purse.js';
import type { Replica } from './replica.js';
import { START, type Position } from '../usage/spool-format.js';

/** What is in hand is looked at this often; what none needed since the last look is returned, ms. */
const WINDOW_MS = 2000;

/** How long others have to return what they do not use, ms. */
const RECALL_MS = 50;

/** How long it is remembered that an account was short, ms. The store has the same bound for recalls. */
const SHORT_MS = 250;

/** How often the store is asked for recalls while something is in hand, ms: notifications may not arrive. */
const POLL_MS = 1000;

/** Accounts of one return; the others follow in the next. */
const TOGETHER = 1000;

/** Accounts that are remembered and have drawn nothing: callers may name any number. */
const MOST_EMPTY = 10_000;

/** Draws in a row that were answered and did not cover what they were for, since a failover had lost others. */
const MOST_REPEATED = 3;

const CHANNEL = 'ra_sidecar_recall';

interface DrawRow {
  readonly outcome: 'drawn' | 'short' | 'recalled' | 'yield' | 'fenced' | 'closed' | 'lease';
  readonly drawn: string;
  readonly available: string;
}

export interface StoreCreditOptions {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
  readonly posting: Posting;
  /** How long a request waits for the store in all, ms. */
  readonly timeoutMs: number;
  /** Another replica was asked for what it does not use. */
  readonly recalling: () => void;
}

/** The credit of a fleet, at this replica. Owned by what opens the store, which closes it. */
export class StoreCredit implements Credit {
  readonly #options: StoreCreditOptions;
  readonly #purses = new Map<string, Purse>();
  /** Those with something in hand or reserved lately. */
  readonly #active = new Set<Purse>();
  /** Those that have drawn nothing, the oldest first. */
  readonly #empty = new Set<Purse>();
  #outstanding = 0;
  /** The number of the last call about an escrow. */
  #seq = 0;
  #stopListening: (() => Promise<void>) | undefined;
  #cancelTimers: (() => void)[] = [];
  readonly #calls = new Set<Promise<void>>();
  #closed = false;

  constructor(options: StoreCreditOptions) {
    this.#options = options;
    this.balances = balancesIn(options);
  }

  readonly escrow = true;
  readonly balances: Credit['balances'];

  get known(): boolean {
    return this.#options.posting.isOpen;
  }

  /** Reservations that have not ended. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Accounts of which this replica holds something that no request has used. */
  get accounts(): number {
    return [...this.#active].filter(({ drawn, settled }) => drawn > settled).length;
  }

  /** The position from which the spool's records are still needed. */
  get keepFrom(): Position {
    return this.#options.posting.keepFrom;
  }

  /** As {@link Posting.begin}; without a spool what is spent is not posted. Call it once. */
  begin(spool: PostedSpool = NO_SPOOL): Promise<string | undefined> {
    const { clock, database } = this.#options;
    this.#stopListening = database.listen(CHANNEL, (account) => this.#recall(account));
    this.#cancelTimers = [every(clock, WINDOW_MS, () => this.#look()), every(clock, POLL_MS, () => this.#poll())];
    return this.#options.posting.begin(spool);
  }

  reserve(account: string, picodollars: bigint): Reserved | Promise<Reserved> {
    if (picodollars <= 0n) return { kind: 'reserved', reservation: FREE };
    const purse = this.#purseOf(account);
    const answer = (kind: Reserved['kind']): Reserved =>
      kind === 'reserved' ? { kind, reservation: this.#reservation(purse, picodollars) } : { kind };
    const taken = this.#take(purse, picodollars);
    return taken instanceof Promise ? taken.then(answer) : answer(taken);
  }

  /** Posts what is durable, and returns what is in hand, if the store answers. To be called before the spool closes. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const cancel of this.#cancelTimers) cancel();
    await this.#stopListening?.();
    await Promise.all(this.#calls);
    await this.#options.posting.close();
    this.#giveBack([...this.#active].map((purse) => [purse, inHand(purse)] as const));
    await Promise.all(this.#calls);
  }

  /** The store has opened this run, perhaps in an earlier state: asks what it holds for this replica. */
  reopened(): void {
    const nothing = [...this.#active].map((purse) => [purse, 0n] as const);
    this.#giveBack(nothing, true);
  }

  get #isUsable(): boolean {
    const { posting, replica } = this.#options;
    return !this.#closed && posting.isOpen && replica.leased;
  }

  #purseOf(account: string): Purse {
    const found = this.#purses.get(account);
    if (found) return found;
    const purse = new Purse(account);
    this.#purses.set(account, purse);
    this.#empty.add(purse);
    if (this.#empty.size > MOST_EMPTY) {
      for (const old of this.#empty) {
        if (old === purse || old.busy || old.unsure) continue;
        this.#empty.delete(old);
        this.#purses.delete(old.account);
        break;
      }
    }
    return purse;
  }

  /** Reserves this sum from the escrow that this sidecar holds, after a draw from the store if that is too little. */
  #take(purse: Purse, picodollars: bigint): Reserved['kind'] | Promise<Reserved['kind']> {
    const { clock, timeoutMs } = this.#options;
    if (!this.#isUsable) return 'unavailable';
    if (purse.waiting.length === 0 && inHand(purse) >= picodollars) {
      this.#hold(purse, picodollars);
      if (inHand(purse) < chunkOf(purse) / 2n && clock.now() >= purse.aheadFrom) this.#draw(purse);
      return 'reserved';
    }
    if (isShort(purse, picodollars, clock.now())) return 'insufficient';
    return new Promise((resolve) => {
      const waiting: Waiting = {
        picodollars,
        answered: (kind) => {
          cancelTimer();
          if (kind === 'reserved') this.#hold(purse, picodollars);
          resolve(kind);
        },
      };
      // What is drawn for it after that is returned.
      const cancelTimer = clock.after(timeoutMs, () => this.#answer(purse, [waiting], 'unavailable'));
      purse.waiting.push(waiting);
      this.#draw(purse);
    });
  }

  #hold(purse: Purse, picodollars: bigint): void {
    hold(purse, picodollars);
    this.#active.add(purse);
  }

  /** Of so much that is held. */
  #reservation(purse: Purse, picodollars: bigint): Reservation {
    this.#outstanding += 1;
    let over = false;
    let held = picodollars;
    /** What is short gets what is left, by a second call. */
    const extend = (more: bigint, again: boolean): bigint | Promise<bigint> => {
      const end = (kind: Reserved['kind']): bigint | Promise<bigint> => {
        if (kind === 'reserved' && over) purse.reserved -= more;
        else if (kind === 'reserved') held += more;
        else if (again && !over) {
          const rest = inHand(purse) + (kind === 'insufficient' ? (purse.short?.available ?? 0n) : 0n);
          if (rest > 0n && rest < more) return extend(rest, false);
        }
        return held;
      };
      const taken = this.#take(purse, more);
      return taken instanceof Promise ? taken.then(end) : end(taken);
    };
    return {
      extend: (wanted) => (over || wanted <= held ? held : extend(wanted - held, true)),
      settle: (actual) => {
        if (over) return;
        over = true;
        this.#outstanding -= 1;
        purse.reserved -= held;
        purse.settled += actual;
        sink(purse);
      },
    };
  }

  /** Draws for those that wait, or ahead of those that come. */
  #draw(purse: Purse): void {
    if (purse.busy) return;
    purse.busy = true;
    this.#track(this.#drawAll(purse).then(() => this.#goOn(purse)));
  }

  /** A call about it has ended: what came meanwhile is next. */
  #goOn(purse: Purse): void {
    purse.busy = false;
    if (purse.waiting.length > 0) this.#draw(purse);
    else if (purse.recalled) {
      purse.recalled = false;
      this.#giveBack([[purse, inHand(purse)]]);
    }
  }

  /** One call after the other until none waits. */
  async #drawAll(purse: Purse): Promise<void> {
    const { clock, recalling } = this.#options;
    let isAhead = purse.waiting.length === 0;
    let mayRecall = true;
    let repeated = 0;
    for (;;) {
      this.#serve(purse);
      const short = purse.waiting.filter(({ picodollars }) => isShort(purse, picodollars, clock.now()));
      this.#answer(purse, short, 'insufficient');
      if (!isAhead && purse.waiting.length === 0) return;
      isAhead = false;
      const asked = [...purse.waiting];
      const row = await this.#ask(purse, asked, mayRecall);
      if (row) this.#hear(purse, row.drawn);
      purse.aheadFrom = clock.now() + SHORT_MS;
      if (!row || !this.#isUsable || repeated > MOST_REPEATED) {
        this.#answer(purse, purse.waiting, 'unavailable');
        return;
      }
      this.#serve(purse);
      const left = asked.filter((each) => purse.waiting.includes(each));
      if ((row.outcome === 'recalled' || row.outcome === 'yield') && mayRecall && left.length > 0) {
        recalling();
        mayRecall = false;
        if (row.outcome === 'yield' && inHand(purse) > 0n) await this.#sendBack([[purse, inHand(purse)]]);
        await new Promise<void>((resolve) => clock.after(RECALL_MS, resolve));
      } else if (row.outcome === 'drawn') {
        repeated = left.length > 0 ? repeated + 1 : 0;
        mayRecall = true;
      } else {
        mayRecall = true;
        purse.short = { until: clock.now() + SHORT_MS, available: BigInt(row.available) };
        this.#answer(purse, left, 'insufficient');
      }
    }
  }

  /** Draws from the store for these requests of an account. Returns its answer; undefined if that decides nothing. */
  async #ask(purse: Purse, asked: readonly Waiting[], mayRecall: boolean): Promise<DrawRow | undefined> {
    const { database, replica } = this.#options;
    const { session, run } = replica;
    if (!session || run === undefined || !this.#isUsable) return undefined;
    const needs = asked.map(({ picodollars }) => `${picodollars}`);
    this.#seq += 1;
    const args = [session.no, session.epoch, run, this.#seq, purse.account, `${inHand(purse)}`, needs];
    const answer = await database.call<DrawRow>('draw', [...args, `${chunkOf(purse)}`, mayRecall]);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (answer.kind === 'down' && answer.sent) this.#doubt(purse);
    if (row?.outcome === 'closed') this.#options.posting.closedByStore();
    if (row?.outcome === 'fenced' || row?.outcome === 'lease') replica.hurry();
    return row && ['drawn', 'short', 'recalled', 'yield'].includes(row.outcome) ? row : undefined;
  }

  /** The store has said what is drawn of an account. */
  #hear(purse: Purse, drawn: string): void {
    purse.drawn = BigInt(drawn);
    purse.returning = 0n;
    purse.unsure = false;
    sink(purse);
    if (purse.drawn === 0n) return;
    this.#active.add(purse);
    this.#empty.delete(purse);
  }

  /** The answer of a call was lost. */
  #doubt(purse: Purse): void {
    purse.unsure = true;
    this.#active.add(purse);
  }

  /** Gives what is in hand to those that wait, in their order. */
  #serve(purse: Purse): void {
    if (!this.#isUsable) return;
    for (const waiting of [...purse.waiting]) {
      if (waiting.picodollars <= inHand(purse)) this.#answer(purse, [waiting], 'reserved');
    }
  }

  #answer(purse: Purse, answered: readonly Waiting[], kind: Reserved['kind']): void {
    for (const waiting of [...answered]) {
      purse.waiting.splice(purse.waiting.indexOf(waiting), 1);
      waiting.answered(kind);
    }
  }

  /** Returns what no request needed since the last look, but for a half of what is spent in a window. */
  #look(): void {
    const idle: (readonly [Purse, bigint])[] = [];
    for (const purse of this.#active) {
      const spare = purse.lowest - (purse.recent === 0n ? 0n : chunkOf(purse) / 2n);
      // What it really has is to be heard first.
      if (!purse.busy && (spare > 0n || purse.unsure)) idle.push([purse, purse.unsure ? 0n : spare]);
      purse.before = purse.recent;
      purse.recent = 0n;
      purse.lowest = inHand(purse);
      if (purse.before === 0n && purse.drawn === purse.settled && !purse.unsure) this.#active.delete(purse);
    }
    this.#giveBack(idle);
  }

  /** An account is scarce elsewhere. */
  #recall(account: string): void {
    const purse = this.#purses.get(account);
    if (!purse || this.#closed) return;
    if (purse.busy) purse.recalled = true;
    else if (inHand(purse) > 0n) this.#giveBack([[purse, inHand(purse)]]);
  }

  #poll(): void {
    const { database, replica } = this.#options;
    const { session } = replica;
    if (!session || ![...this.#active].some((purse) => inHand(purse) > 0n)) return;
    this.#track(
      database.call<{ account: string }>('recalls', [session.no]).then((answer) => {
        if (answer.kind === 'rows') for (const { account } of answer.rows) this.#recall(account);
      }),
    );
  }

  /** Returns these picodollars of each account to the store, at most what is in hand. `anew`: ask for the amounts drawn even if none is returned. */
  #giveBack(amounts: readonly (readonly [Purse, bigint])[], anew = false): void {
    const free = amounts
      .filter(([purse, amount]) => !purse.busy && (amount > 0n || purse.unsure || anew))
      .map(([purse, amount]) => [purse, amount > 0n ? amount : 0n] as const);
    for (let at = 0; at < free.length; at += TOGETHER) this.#track(this.#return(free.slice(at, at + TOGETHER)));
  }

  async #return(amounts: readonly (readonly [Purse, bigint])[]): Promise<void> {
    for (const [purse] of amounts) purse.busy = true;
    await this.#sendBack(amounts);
    for (const [purse] of amounts) this.#goOn(purse);
  }

  /** The same, of accounts about which no other call is in flight. */
  async #sendBack(amounts: readonly (readonly [Purse, bigint])[]): Promise<void> {
    const { database, replica } = this.#options;
    const { session, run } = replica;
    if (!session || run === undefined || !this.#options.posting.isOpen) return;
    for (const [purse, amount] of amounts) {
      purse.returning += amount;
      sink(purse);
    }
    this.#seq += 1;
    const answer = await database.call<{ account: string; drawn: string }>('return_escrow', [
      session.no,
      session.epoch,
      run,
      this.#seq,
      amounts.map(([{ account }]) => account),
      amounts.map(([, amount]) => `${amount}`),
    ]);
    const drawn = new Map(answer.kind === 'rows' ? answer.rows.map((row) => [row.account, row.drawn]) : []);
    for (const [purse, amount] of amounts) {
      const now = drawn.get(purse.account);
      if (now !== undefined) this.#hear(purse, now);
      else if (answer.kind === 'down' && answer.sent) this.#doubt(purse);
      else purse.returning -= amount;
    }
  }

  /** `call` never rejects. */
  #track(call: Promise<void>): void {
    this.#calls.add(call);
    void call.then(() => this.#calls.delete(call));
  }
}

/** Of a request that costs nothing. */
const FREE: Reservation = { extend: (wanted) => wanted, settle: () => undefined };

const NO_SPOOL: PostedSpool = {
  estimated: [],
  position: START,
  oldest: () => Promise.resolve(START),
  read: async function* () {},
  sync: () => Promise.resolve(true),
};

/** Time for which a balance that was read is returned without asking the store again, ms. */
const FRESH_MS = 1000;

/** Accounts that are remembered. Those that were read longest ago are forgotten. */
const MOST_BALANCES = 10_000;

type BalanceRow = Readonly<Record<'account' | 'granted' | 'settled' | 'held', string>>;

/**
 * Reads balances, those of one call together. While the store does not answer, they are those of the last answer, without the accounts of
 * which no balance was ever read.
 */
function balancesIn({ clock, database }: Pick<StoreCreditOptions, 'clock' | 'database'>): Credit['balances'] {
  const known = new Map<string, Balance & { readonly at: number }>();
  const asking = new Map<string, Promise<void>>();
  const ask = async (accounts: readonly string[]): Promise<void> => {
    const at = clock.now();
    const answer = await database.call<BalanceRow>('balances_of', [accounts]);
    for (const account of accounts) asking.delete(account);
    if (answer.kind === 'down') return;
    const rows = new Map(answer.rows.map((row) => [row.account, row]));
    for (const account of accounts) {
      const { granted = 0, settled = 0, held = 0 } = rows.get(account) ?? {};
      const balance = { granted: BigInt(granted), settled: BigInt(settled), reserved: BigInt(held), at };
      setNewest(known, account, balance, MOST_BALANCES);
    }
  };
  return async (accounts, anew = false) => {
    const from = clock.now() - (anew ? 0 : FRESH_MS);
    const isFresh = (account: string): boolean => (known.get(account)?.at ?? -Infinity) > from;
    const missing = accounts.filter((account) => !isFresh(account) && (anew || !asking.has(account)));
    if (missing.length > 0) {
      const asked = ask(missing);
      for (const account of missing) asking.set(account, asked);
    }
    await Promise.all(accounts.flatMap((account) => asking.get(account) ?? []));
    return new Map(
      accounts.flatMap((account) => {
        const found = known.get(account);
        if (!found || (anew && found.at < from)) return [];
        const { at, ...balance } = found;
        return [[account, { ...balance, ageMs: Math.round(clock.now() - at) }]];
      }),
    );
  };
}
