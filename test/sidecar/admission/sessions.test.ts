/** Seats that stay with a session after a turn: each rule alone, and what always holds, on a fake clock. */
import fc from 'fast-check';
import t from 'tap';
import { prefixHashes } from '../../../engine/protocol/cache-key.js';
import type { QueueReport } from '../../../sidecar/admission/report.js';
import type { ReplicaSize } from '../../../sidecar/admission/seats.js';
import type { Lease, QueueConfig, QueueRequest, Refused, Ticket } from '../../../sidecar/admission/types.js';
import { seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { later, QueueDesk, ticketOf } from '../../support/queue-desk.js';

const KEEP_MAX_MS = 60_000;
/** Of it a seat is kept for at most, where few pauses are long. */
const USUAL_SHARE = 0.4;
/** A prompt token takes so long to compute: the seats of a session of 1,000 tokens on 4 seats are kept for 4 s. */
const TOKEN_MS = 1;
const FIRST_TOKENS = 1000;
const MORE_TOKENS = 100;

/** The tokens of a session's prompt: no two sessions have a common beginning. */
function promptOf(session: number, tokens: number): Uint32Array {
  const prompt = new Uint32Array(tokens);
  for (let i = 0; i < tokens; i += 1) prompt[i] = (session + 1) * 1_000_000 + i;
  return prompt;
}

interface Turn {
  /** The client's own id of the session. */
  readonly name?: string | undefined;
  readonly tokens?: number;
  readonly prompt?: Uint32Array;
  readonly request?: Partial<QueueRequest>;
}

class Desk extends QueueDesk {
  /** Tokens of each session's last prompt. */
  readonly #tokens = new Map<string, number>();

  constructor(
    seats: number | readonly ReplicaSize[] = 4,
    {
      keepMaxMs = KEEP_MAX_MS,
      hasCache = false,
      headroom = 1,
      ...config
    }: Partial<QueueConfig> & { keepMaxMs?: number; hasCache?: boolean; headroom?: number } = {},
  ) {
    super(seats, { waitingBytes: 1e6, ...config }, { sessions: { keepMaxMs, hasCache }, headroom });
  }

  /** A turn of a session, of this name if any. */
  ofSession(account: string, name?: string, request: Partial<QueueRequest> = {}): Ticket | Refused {
    return this.ask(account, { weight: 4, bytes: 1, session: { name }, ...request });
  }

  /** The next turn of a session: its prompt is longer than the last one. */
  turn(account: string, session: number, { name, tokens, prompt, request }: Turn = {}): Ticket {
    const ticket = ticketOf(this.ofSession(account, name, request));
    const key = `${account} ${session}`;
    const length = tokens ?? (this.#tokens.get(key) ?? FIRST_TOKENS - MORE_TOKENS) + MORE_TOKENS;
    this.#tokens.set(key, length);
    const all = prompt ?? promptOf(session, length);
    ticket.ready({ promptTokens: all.length, seatTokens: all.length, prefix: prefixHashes(all, account) });
    return ticket;
  }

  /** A request that is no turn of a session. */
  single(account: string, request: Partial<QueueRequest> = {}): Ticket {
    return ticketOf(this.ask(account, { weight: 4, bytes: 1, ...request }), { promptTokens: 100 });
  }

  /** A whole turn of `ms`. Its prompt takes TOKEN_MS a token, all of which is computed. */
  async serve(account: string, session: number, ms = 1000, turn: Turn = {}): Promise<Lease> {
    const lease = await this.seat(this.turn(account, session, turn));
    lease.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
    this.clock.advance(ms);
    lease.release('done');
    return lease;
  }

  /** Whether a request has its seat by now. */
  async isSeated(ticket: Ticket): Promise<boolean> {
    return (await Promise.race([ticket.outcome.then(({ kind }) => kind), later()])) === 'seated';
  }
}

t.test('after a turn the seat is kept, for as long as all seats would take to compute its prompt again', async (t) => {
  const desk = new Desk(4);
  await desk.serve('a', 1);
  t.match(desk.report, { busy: 0, kept: 1, accounts: [{ account: 'a', kept: 1, running: 0 }] });
  desk.clock.advance(3999);
  t.match(desk.report, { kept: 1 });
  desk.clock.advance(1);
  t.match(desk.report, { kept: 0, sessions: { known: 1, keeps: { expired: 1 } } });
});

t.test('no longer than the setting says', async (t) => {
  const desk = new Desk(4, { keepMaxMs: 500 });
  await desk.serve('a', 1);
  desk.clock.advance(500);
  t.match(desk.report, { kept: 0 });
});

t.test('no longer than 16 times the long pauses of its account', async (t) => {
  const desk = new Desk(4);
  for (const pauseMs of [100, 0, 100]) {
    await desk.serve('a', 1);
    desk.clock.advance(pauseMs);
  }
  await desk.serve('a', 1);
  const ms = 16 * (97 + 0.3 * 3);
  desk.clock.advance(Math.floor(ms));
  t.match(desk.report, { kept: 1 });
  desk.clock.advance(1);
  t.match(desk.report, { kept: 0, sessions: { keeps: { expired: 1 } } });
});

t.test('for longer than is usual only where half of its account’s pauses are long', async (t) => {
  for (const [pauseMs, keptMs] of [
    [3000, USUAL_SHARE * KEEP_MAX_MS],
    [20_000, KEEP_MAX_MS],
  ] as const) {
    const desk = new Desk(4);
    const turn = async (): Promise<void> => {
      const lease = await desk.seat(desk.turn('a', 1, { tokens: FIRST_TOKENS }));
      lease.prefilled(20_000, 0);
      lease.release('done');
    };
    for (let turns = 0; turns < 60; turns += 1) {
      await turn();
      desk.clock.advance(pauseMs);
    }
    await turn();
    desk.clock.advance(keptMs - 1);
    t.match(desk.report, { kept: 1 });
    desk.clock.advance(1);
    t.match(desk.report, { kept: 0 });
  }
});

t.test('others get the other seats, the next turn gets its own at once, whatever waits', async (t) => {
  const desk = new Desk(2);
  await desk.serve('a', 1);
  const running = await desk.seat(desk.single('a'));
  const waits = desk.single('a');
  t.notOk(await desk.isSeated(waits));
  const next = desk.turn('a', 1);
  t.ok(await desk.isSeated(next));
  t.match(desk.report, { busy: 2, kept: 0, waiting: 1, sessions: { turns: { first: 1, kept: 1, cold: 0 } } });
  running.release('done');
  t.ok(await desk.isSeated(waits));
});

t.test('a keep that ends gives its seat to a request that waits', async (t) => {
  const desk = new Desk(2);
  await desk.serve('a', 1);
  await desk.seat(desk.single('a'));
  const waits = desk.single('a');
  desk.clock.advance(2000);
  t.ok(await desk.isSeated(waits));
  t.equal(desk.clock.pending, 0);
});

t.test('the last seat is kept for a moment only, and one seat alone not at all', async (t) => {
  for (const [seats, kept] of [
    [1, 0],
    [2, 1],
    [8, 7],
    [16, 15],
  ] as const) {
    const desk = new Desk(seats);
    const leases = [];
    for (let session = 0; session < seats; session += 1) leases.push(await desk.seat(desk.turn('a', session)));
    for (const lease of leases) lease.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
    for (const lease of leases) lease.release('done');
    t.equal(desk.report.kept, seats === 1 ? 0 : seats, `${seats} seats`);
    desk.clock.advance(249);
    t.equal(desk.report.kept, seats === 1 ? 0 : seats, 'others’ next turns come together');
    desk.clock.advance(1);
    t.equal(desk.report.kept, kept);
  }
});

t.test('only the end of a turn that was answered keeps a seat', async (t) => {
  for (const reason of ['cancelled', 'failed', 'engine-lost', 'deadline'] as const) {
    const desk = new Desk();
    await desk.serve('a', 1);
    const lease = await desk.seat(desk.turn('a', 1));
    lease.release(reason);
    t.match(desk.report, { busy: 0, kept: 0 }, reason);
  }
});

t.test('a session is recognised', async (t) => {
  const recognised = async (
    first: Turn & { account?: string },
    next: Turn & { account?: string },
  ): Promise<boolean> => {
    const desk = new Desk();
    await desk.serve(first.account ?? 'a', 1, 1000, first);
    await desk.seat(desk.turn(next.account ?? 'a', 1, next));
    return desk.report.sessions.turns.kept === 1;
  };
  const rewritten = promptOf(2, 600);
  // The first chunk stays: the system prompt.
  rewritten.set(promptOf(1, 64));
  t.ok(await recognised({}, {}), 'by the chunks of its prompt');
  t.ok(await recognised({}, { tokens: 1000 }), 'also if nothing is added');
  t.notOk(await recognised({}, { tokens: 900 }), 'not if the prompt is shorter');
  t.notOk(await recognised({}, { account: 'b' }), 'of its account alone');
  t.notOk(await recognised({}, { prompt: promptOf(2, 2000) }), 'not by its length');
  t.ok(await recognised({ name: 'x' }, { name: 'x', prompt: rewritten }), 'by its id if the prompt was rewritten');
  t.notOk(await recognised({ name: 'x' }, { name: 'y', prompt: rewritten }), 'not by another id');
  t.notOk(await recognised({ name: 'x' }, { name: 'y' }), 'which makes it a copy of the session');
  t.notOk(
    await recognised({ name: 'x' }, { name: 'x', account: 'b', prompt: rewritten }),
    'nor by the id of another account',
  );
  t.notOk(
    await recognised({ name: 'x' }, { name: 'x', prompt: promptOf(2, 600) }),
    'subagents have the id, and another prompt',
  );
});

t.test('an id that several sessions have does not tell which is meant', async (t) => {
  const desk = new Desk();
  const prompts = [700, 900, 1200].map((tokens, session) => {
    const prompt = promptOf(session, tokens);
    prompt.set(promptOf(9, 64));
    return prompt;
  });
  const [one, two, three] = prompts;
  const both = [one, two].map((prompt) => desk.turn('a', 1, { name: 'app', ...(prompt && { prompt }) }));
  for (const ticket of both) (await desk.seat(ticket)).release('done');
  await desk.seat(desk.turn('a', 1, { name: 'app', ...(three && { prompt: three }) }));
  t.match(desk.report.sessions, { turns: { kept: 0, first: 3, cold: 0 }, known: 3 });
});

t.test('a second turn while one runs is a session of its own', async (t) => {
  const desk = new Desk();
  await desk.serve('a', 1);
  const first = await desk.seat(desk.turn('a', 1));
  const branch = await desk.seat(desk.turn('a', 1));
  t.not(first.claims?.session, branch.claims?.session);
  first.release('done');
  branch.release('done');
  t.match(desk.report, { kept: 2, sessions: { known: 2 } });
  await desk.seat(desk.turn('a', 1));
  await desk.seat(desk.turn('a', 1));
  t.match(desk.report.sessions, { turns: { kept: 3 } });
});

t.test('the engine is told with every job which sequences it must not overwrite', async (t) => {
  const desk = new Desk(8, { headroom: 0 });
  const one = (await desk.serve('a', 1)).claims?.session;
  const two = (await desk.serve('b', 2)).claims?.session;
  const new3 = await desk.seat(desk.turn('a', 3));
  t.same(new Set(new3.claims?.kept), new Set([one, two]));
  const again = await desk.seat(desk.turn('a', 1));
  t.same(again.claims, { session: one, kept: [two] });
  const single = await desk.seat(desk.single('a'));
  t.same(single.claims, { kept: [two] });
  const lent = await desk.seat(desk.single('batch', { weight: 1, lent: true }));
  t.same([lent.lent, lent.claims], [true, { kept: [two] }]);
  await desk.seat(desk.turn('b', 2));
  t.equal((await desk.seat(desk.single('a'))).claims, undefined, 'nothing where none is kept');
});

t.test('in an account further turns go before new sessions', async (t) => {
  const desk = new Desk(1);
  await desk.serve('a', 1);
  const running = await desk.seat(desk.single('a'));
  const fresh = desk.turn('a', 2);
  const further = desk.turn('a', 1);
  running.release('done');
  t.ok(await desk.isSeated(further));
  t.notOk(await desk.isSeated(fresh));
});

t.test('between accounts the one with less seat time goes first, whatever goes on', async (t) => {
  const desk = new Desk(1);
  await desk.serve('a', 1, 5000);
  const running = await desk.seat(desk.single('a'));
  const [further, other] = [desk.turn('a', 1), desk.turn('b', 2)];
  desk.clock.advance(100);
  running.release('done');
  t.ok(await desk.isSeated(other));
  t.notOk(await desk.isSeated(further));
});

t.test('a kept seat is charged while requests wait, and is no seat time of a request', async (t) => {
  const desk = new Desk(2);
  await desk.serve('a', 1, 1000);
  const of = (): unknown => desk.report.accounts.find(({ account }) => account === 'a');
  t.match(of(), { virtualMs: 250, seatMs: 1000 });
  desk.clock.advance(100);
  t.match(of(), { virtualMs: 250 }, 'not while none waits');
  await desk.seat(desk.single('b'));
  desk.single('b');
  desk.clock.advance(400);
  t.match(of(), { virtualMs: 350, seatMs: 1000 });
});

t.test('a kept seat is charged to the class of its turn', async (t) => {
  const desk = new Desk(2);
  await desk.serve('a', 1, 1000, { request: { weight: 1, ownWeight: 16 } });
  await desk.seat(desk.single('b'));
  desk.single('a', { weight: 16 });
  const classes = (): unknown => desk.report.accounts.find(({ account }) => account === 'a')?.classes;
  t.match(classes(), [
    { class: 'interactive', kept: 0 },
    { class: 'batch', kept: 1 },
  ]);
});

t.test('the queue stands while sessions keep the last seats, and a report says so', async (t) => {
  const desk = new Desk(2, { maxWaitMs: 1e6 });
  await desk.serve('a', 1, 100);
  await desk.seat(desk.single('a'));
  desk.single('a');
  desk.clock.advance(1900);
  t.match(desk.report, { busy: 1, kept: 1, overload: { standing: true } });
});

t.test('an account without a seat takes the kept one that is idle longest, of the account with the most', async (t) => {
  const desk = new Desk(8);
  for (const session of [1, 2, 3]) await desk.serve('a', session, 10);
  await desk.serve('b', 1, 10);
  for (let i = 0; i < 4; i += 1) await desk.seat(desk.single('a'));
  t.match(desk.report, { busy: 4, kept: 4 });
  t.ok(await desk.isSeated(desk.single('c')));
  t.match(desk.report, { kept: 3, sessions: { keeps: { taken: 1 } } });
  await desk.seat(desk.turn('a', 2));
  await desk.seat(desk.turn('a', 3));
  await desk.seat(desk.turn('b', 1));
  t.match(desk.report, { busy: 8, kept: 0, sessions: { turns: { kept: 3 } } });
});

t.test(
  'a free seat goes to the account that would else take a kept one for it, though it had more seat time',
  async (t) => {
    const served = async (seatsOfB: 0 | 1): Promise<Desk> => {
      const desk = new Desk(4, { maxWaitMs: 1e6 });
      const leases = [await desk.seat(desk.turn('a', 1))];
      for (let i = 0; i < 3; i += 1) leases.push(await desk.seat(desk.single('b')));
      leases[0]?.prefilled(20_000, 0);
      desk.clock.advance(10_000);
      for (const lease of leases.slice(0, 4 - seatsOfB)) lease.release('done');
      await desk.seat(desk.single('a'));
      const ends = await desk.seat(desk.single('c'));
      if (seatsOfB === 0) await desk.seat(desk.single('c'));
      const [ofA, ofB] = [desk.turn('a', 2), desk.turn('b', 3)];
      ends.release('done');
      t.same([await desk.isSeated(ofA), await desk.isSeated(ofB)], [seatsOfB === 1, seatsOfB === 0]);
      return desk;
    };
    t.match((await served(0)).report, { kept: 1, waiting: 1, sessions: { keeps: { taken: 0 } } });
    t.match((await served(1)).report, { kept: 1, waiting: 1 }, 'else to the one with less');
  },
);

t.test('none is taken from an account with fewer than twice as many seats, for its weight', async (t) => {
  const desk = new Desk(4);
  await desk.serve('a', 1, 10);
  for (const account of ['b', 'c', 'd']) await desk.seat(desk.single(account));
  t.notOk(await desk.isSeated(desk.single('e')), 'one seat each');
  const heavy = new Desk(4);
  for (const session of [1, 2, 3]) await heavy.serve('a', session, 10, { request: { weight: 16 } });
  await heavy.seat(heavy.single('b'));
  t.notOk(await heavy.isSeated(heavy.single('c')), 'three at weight 16 are not many beside one at weight 4');
});

t.test(
  'a newcomer that returns after Retry-After gets the seat that is idle longest, at the end of its wait',
  async (t) => {
    const desk = new Desk(4, { keepMaxMs: 30_000 / USUAL_SHARE });
    const lease = await desk.seat(desk.single('a'));
    desk.clock.advance(100_000);
    lease.release('done');
    const keepThree = async (): Promise<void> => {
      for (const session of [1, 2, 3]) {
        const turn = await desk.seat(desk.turn('a', session));
        turn.prefilled(20_000, 0);
        desk.clock.advance(10);
        turn.release('done');
      }
    };
    await keepThree();
    await desk.seat(desk.single('b'));
    const newcomer = (session: number): Ticket => desk.turn('a', session, { request: { bodyDigest: `${session}` } });
    const refused = await newcomer(4).outcome;
    // The first keep ends then.
    t.match(refused, { kind: 'refused', reason: 'sessions', retry: 'reserved', retryAfterMs: 29_980 });
    desk.clock.advance(20_000);
    await keepThree();
    desk.clock.advance(9950);
    t.match(await newcomer(5).outcome, { kind: 'refused', reason: 'sessions' }, 'nothing was promised to another');
    const promised = newcomer(4);
    desk.clock.advance(9_999);
    t.notOk(await desk.isSeated(promised));
    desk.clock.advance(1);
    t.ok(await desk.isSeated(promised));
    t.match(desk.report, { busy: 2, kept: 2, sessions: { keeps: { taken: 1 } } });
    for (const session of [2, 3]) await desk.seat(desk.turn('a', session));
    t.match(desk.report.sessions.turns, { kept: 5 }, 'the others are where they were');
  },
);

t.test('a promised seat is not taken from an account that has fewer seats', async (t) => {
  const desk = new Desk(4, { maxWaitMs: 5000 });
  const lease = await desk.seat(desk.single('a'));
  desk.clock.advance(100_000);
  lease.release('done');
  const turn = await desk.seat(desk.turn('b', 1));
  turn.prefilled(20_000, 0);
  turn.release('done');
  for (let i = 0; i < 3; i += 1) await desk.seat(desk.single('a'));
  const newcomer = (): Ticket => desk.turn('a', 2, { request: { bodyDigest: 'x' } });
  const refused = desk.ofSession('a', undefined, { bodyDigest: 'x' });
  t.match(refused, { kind: 'refused', reason: 'sessions', retry: 'reserved' });
  desk.clock.advance('kind' in refused ? refused.retryAfterMs : 0);
  const promised = newcomer();
  desk.clock.advance(9999);
  t.notOk(await desk.isSeated(promised));
  desk.clock.advance(1);
  t.match(await promised.outcome, { kind: 'refused', reason: 'wait' }, 'after twice the longest wait');
  t.match(desk.report, { kept: 1 });
});

t.test('a promised request that finds no kept seat to take gets the next free one, before all others', async (t) => {
  const desk = new Desk(4, { maxWaitMs: 5000 });
  const lease = await desk.seat(desk.single('a'));
  desk.clock.advance(100_000);
  lease.release('done');
  const turn = await desk.seat(desk.turn('b', 1));
  turn.prefilled(20_000, 0);
  turn.release('done');
  const running = await Promise.all([1, 2, 3].map(() => desk.seat(desk.single('a'))));
  const refused = desk.ofSession('a', undefined, { bodyDigest: 'x' });
  t.match(refused, { kind: 'refused', reason: 'sessions', retry: 'reserved' });
  desk.clock.advance('kind' in refused ? refused.retryAfterMs : 0);
  const promised = desk.turn('a', 2, { request: { bodyDigest: 'x' } });
  desk.clock.advance(4900);
  const other = desk.single('c');
  desk.clock.advance(1100);
  t.notOk(await desk.isSeated(promised));
  running[0]?.release('done');
  t.ok(await desk.isSeated(promised));
  t.notOk(await desk.isSeated(other), 'whose account has no seat');
  t.match(desk.report, { kept: 1, waiting: 1 });
});

t.test(
  'in its second wait it takes a seat that is kept for less than a wait, where a cache has what is lost',
  async (t) => {
    for (const hasCache of [true, false]) {
      const desk = new Desk(4, { maxWaitMs: 5000, hasCache });
      for (let turn = 0; turn < 10; turn += 1) {
        const lease = await desk.seat(desk.turn('b', 1, { tokens: FIRST_TOKENS }));
        // Nothing was restored.
        lease.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
        lease.release('done');
      }
      const running = await desk.seat(desk.turn('b', 1, { tokens: FIRST_TOKENS }));
      for (let i = 0; i < 3; i += 1) await desk.seat(desk.single('a'));
      const owed = desk.turn('b', 2);
      desk.clock.advance(6000);
      t.notOk(await desk.isSeated(owed));
      running.release('done');
      t.equal(await desk.isSeated(owed), hasCache);
      t.match(desk.report, { kept: hasCache ? 0 : 1 });
    }
  },
);

t.test('a promised request that loses its replica after its wait waits as long again for another', async (t) => {
  for (const losesBy of ['giveBack', 'pause'] as const) {
    for (const isFreed of [true, false]) {
      const size = { seats: 2, contextPerSeat: 1e6 };
      const desk = new Desk([size, size], { maxWaitMs: 5000 });
      const lease = await desk.seat(desk.single('a'));
      desk.clock.advance(100_000);
      lease.release('done');
      const turn = await desk.seat(desk.turn('b', 1));
      turn.prefilled(20_000, 0);
      turn.release('done');
      const running = await Promise.all([1, 2, 3].map(() => desk.seat(desk.single('a'))));
      const refused = desk.ofSession('a', undefined, { bodyDigest: 'x' });
      desk.clock.advance('kind' in refused ? refused.retryAfterMs : 0);
      const promised = desk.turn('a', 2, { request: { bodyDigest: 'x' } });
      desk.clock.advance(6000);
      const [freed] = running;
      const other = running.find(({ replica }) => replica !== freed?.replica);
      freed?.release('done');
      const lost = losesBy === 'giveBack' ? await desk.seat(promised) : undefined;
      desk.queue.pause(freed?.replica);
      const outcome = lost?.giveBack() ?? promised.outcome;
      await later();
      desk.clock.advance(4999);
      if (isFreed) other?.release('done');
      else desk.clock.advance(1);
      const expected = isFreed
        ? { kind: 'seated', lease: { replica: other?.replica } }
        : { kind: 'refused', reason: 'wait' };
      t.match(await outcome, expected, losesBy);
    }
  }
});

/** Eight seats: account h has five, four of them kept, and account l runs three; all were used for long. */
async function oneSeatShort(): Promise<Desk> {
  const desk = new Desk(8);
  const lease = await desk.seat(desk.single('h'));
  desk.clock.advance(100_000);
  lease.release('done');
  for (const session of [1, 2, 3, 4]) {
    const turn = await desk.seat(desk.turn('h', session));
    turn.prefilled(20_000, 0);
    desk.clock.advance(10);
    turn.release('done');
  }
  await desk.seat(desk.single('h'));
  for (let i = 0; i < 3; i += 1) await desk.seat(desk.single('l'));
  return desk;
}

t.test('an account with fewer seats than its share is owed one at the end of a wait', async (t) => {
  const desk = await oneSeatShort();
  t.match(await desk.turn('h', 9).outcome, { kind: 'refused', reason: 'sessions' }, 'not one with more');
  const owed = desk.turn('l', 1);
  t.match(desk.ofSession('l'), { kind: 'refused', reason: 'sessions' }, 'nor a second one beyond its share');
  desk.clock.advance(9_999);
  t.notOk(await desk.isSeated(owed));
  desk.clock.advance(1);
  t.ok(await desk.isSeated(owed));
  t.match(desk.report, { busy: 5, kept: 3, sessions: { keeps: { taken: 1 } } });
  for (const session of [2, 3, 4]) await desk.seat(desk.turn('h', session));
  t.match(desk.report.sessions.turns, { kept: 3 }, 'the seat was the one that was idle longest');
});

t.test('none is owed to an account of which so many requests come that one is always there', async (t) => {
  const desk = await oneSeatShort();
  const owed = desk.turn('l', 1);
  for (let i = 0; i < 20; i += 1) desk.ofSession('l');
  owed.cancel();
  t.match(desk.ofSession('l'), { kind: 'refused', reason: 'sessions' });
});

t.test('an account whose share is less than a seat is owed one for its rare requests', async (t) => {
  const desk = new Desk(4);
  const seatOf = async (account: string, ms: number): Promise<void> => {
    const lease = await desk.seat(desk.single(account));
    desk.clock.advance(ms);
    lease.release('done');
  };
  await seatOf('light', 1000);
  await seatOf('a', 100_000);
  for (const account of ['a', 'b', 'c']) {
    const turn = await desk.seat(desk.turn(account, 1));
    turn.prefilled(20_000, 0);
    turn.release('done');
  }
  await desk.seat(desk.single('d'));
  const owed = desk.single('light');
  desk.clock.advance(9_999);
  t.notOk(await desk.isSeated(owed));
  desk.clock.advance(1);
  t.ok(await desk.isSeated(owed));
});

t.test('however short its pauses are, a session gives way to an account that is far behind', async (t) => {
  const desk = new Desk(2, { maxWaitMs: 1e7, keepMaxMs: 1000 });
  await desk.serve('a', 1, 10);
  await desk.seat(desk.single('b'));
  const waits = desk.single('c');
  let turns = 0;
  for (; turns < 100 && !(await desk.isSeated(waits)); turns += 1) {
    await desk.serve('a', 1, 500);
    desk.clock.advance(10);
  }
  t.ok(turns > 5 && turns < 15, `after ${turns} turns`);
});

/**
 * Twelve agents on four seats, each with sessions of ten turns of about a second and pauses of about a tenth, for ten minutes. `beside`:
 * requests of account b, four at a time, each with a prompt of its own.
 */
async function agentsAtWork(
  keepMaxMs: number,
  beside?: Partial<QueueRequest>,
): Promise<{ readonly report: QueueReport; readonly refusals: readonly Refused[]; readonly turns: number }> {
  const desk = new Desk(4, { keepMaxMs });
  const random = seeded(1);
  const refusals: Refused[] = [];
  const after = (ms: number): Promise<void> => new Promise((resolve) => desk.clock.after(ms, resolve));
  let sessions = 0;
  let turns = 0;
  const agent = async (account: string, perSession: number, request: Partial<QueueRequest>): Promise<void> => {
    let turn = 0;
    let session = (sessions += 1);
    for (;;) {
      const ticket = desk.queue.enter({ account, weight: 4, bytes: 1, seatsWanted: 1, ...request });
      const prompt = promptOf(session, FIRST_TOKENS + MORE_TOKENS * turn);
      if (!('kind' in ticket)) ticket.ready({ promptTokens: prompt.length, prefix: prefixHashes(prompt, account) });
      const outcome = 'kind' in ticket ? ticket : await ticket.outcome;
      if (outcome.kind === 'refused') {
        refusals.push(outcome);
        await after(outcome.retryAfterMs);
      } else if (outcome.kind === 'seated') {
        await after(500 + 1000 * random());
        outcome.lease.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
        outcome.lease.release('done');
        turns += account === 'a' ? 1 : 0;
        await after(200 * random());
        turn = (turn + 1) % perSession;
        if (turn === 0) session = sessions += 1;
      } else return;
    }
  };
  for (let i = 0; i < 12; i += 1) void agent('a', 10, { session: { name: undefined } });
  for (let i = 0; i < 4 && beside !== undefined; i += 1) void agent('b', 1, beside);
  while (desk.clock.step(600_000)) await later();
  return { report: desk.report, refusals, turns };
}

t.test('more agents than seats: their turns find their seats, and a newcomer is refused at once', async (t) => {
  const { report, refusals } = await agentsAtWork(KEEP_MAX_MS);
  const { turns } = report.sessions;
  const all = turns.kept + turns.cold + turns.first;
  t.ok(turns.kept > 0.85 * all, JSON.stringify(report.sessions));
  const early = refusals.filter(({ reason }) => reason === 'sessions');
  t.ok(early.length > 0.7 * refusals.length, JSON.stringify(report.refused));
  const off = (await agentsAtWork(0)).report.sessions.turns;
  t.equal(off.kept, 0, 'none is kept with 0');
});

t.test(
  'an account that opens sessions and never continues them takes no more from others than its requests do',
  async (t) => {
    const names = { name: 'the id of another account’s session' };
    const single = await agentsAtWork(KEEP_MAX_MS, {});
    for (const session of [{ name: undefined }, names]) {
      const opened = await agentsAtWork(KEEP_MAX_MS, { session });
      t.ok(opened.turns > 0.97 * single.turns, `${opened.turns} turns of others instead of ${single.turns}`);
    }
  },
);

t.test('an account whose requests are never continued keeps no seat after its first ones', async (t) => {
  const desk = new Desk(4);
  for (let session = 0; session < 20; session += 1) {
    await desk.serve('a', session, 10);
    desk.clock.advance(5000);
  }
  await desk.serve('a', 99, 10);
  t.match(desk.report, { kept: 0 });
  await desk.serve('b', 1, 10);
  t.match(desk.report, { kept: 1 }, 'which says nothing of others');
  for (let turn = 0; turn < 10; turn += 1) await desk.serve('a', 5, 10);
  t.match(
    desk.report.accounts.find(({ account }) => account === 'a'),
    { kept: 1 },
    'until they are',
  );
});

t.test('a lost or replaced engine, and a drain, end the keeps', async (t) => {
  for (const end of ['pause', 'resume', 'drain'] as const) {
    const desk = new Desk(4);
    await desk.serve('a', 1);
    if (end === 'resume') desk.queue.resume(4);
    else desk.queue[end]();
    t.match(desk.report, { kept: 0, sessions: { keeps: { lost: 1 } } }, end);
    t.equal(desk.clock.pending, 0);
  }
});

t.test('during a drain no seat is kept', async (t) => {
  const desk = new Desk(4);
  await desk.serve('a', 1);
  const lease = await desk.seat(desk.turn('a', 1));
  desk.queue.drain();
  lease.release('done');
  t.match(desk.report, { busy: 0, kept: 0 });
});

t.test('a session goes on where its seat is, on the replica that is also long enough', async (t) => {
  const desk = new Desk([
    { seats: 4, contextPerSeat: 2000 },
    { seats: 4, contextPerSeat: 8000 },
  ]);
  const { replica } = await desk.serve('a', 1);
  t.equal(replica, 0);
  for (let i = 0; i < 3; i += 1) await desk.seat(desk.single('b'));
  t.equal((await desk.serve('a', 1)).replica, 0);
  t.equal((await desk.serve('a', 1, 10, { tokens: 3000 })).replica, 1, 'its prompt has outgrown the seat');
  t.match(desk.report, { kept: 1, replicas: [{ kept: 0 }, { kept: 1 }] });
});

t.test('with a cache of overwritten states no seat is kept until turns show what its loss costs', async (t) => {
  const desk = new Desk(4, { hasCache: true });
  await desk.serve('a', 1);
  t.match(desk.report, { kept: 0 });
  for (let turn = 0; turn < 10; turn += 1) {
    const lease = await desk.seat(desk.turn('a', 1));
    // Nothing was restored.
    lease.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
    lease.release('done');
  }
  t.match(desk.report, { kept: 1 });
});

t.test('where no seat is kept, as at an external server, sessions are counted, and go on first', async (t) => {
  const desk = new Desk(1, { keepMaxMs: 0 });
  await desk.serve('a', 1);
  t.match(desk.report, { kept: 0 });
  const running = await desk.seat(desk.single('a'));
  const [fresh, further] = [desk.turn('a', 2), desk.turn('a', 1)];
  running.release('done');
  t.ok(await desk.isSeated(further));
  t.notOk(await desk.isSeated(fresh));
  t.match(desk.report.sessions, { known: 1, turns: { first: 1, kept: 0, cold: 1 } });
});

t.test('a kept seat is not lent, and a turn whose seat is kept recalls no lent one', async (t) => {
  const desk = new Desk(4, { headroom: 0 });
  await desk.serve('a', 1);
  const lent = [0, 1, 2, 3].map(() => desk.single('batch', { weight: 1, lent: true }));
  const seated = await Promise.all(lent.map((ticket) => desk.isSeated(ticket)));
  t.strictSame(seated, [true, true, true, false]);
  t.ok(await desk.isSeated(desk.turn('a', 1)));
  t.match(desk.report, { busy: 1, kept: 0, lent: { seats: 3, ends: { recalled: 0 } } });
  const next = desk.turn('b', 2);
  t.ok(await desk.isSeated(next), 'another one recalls the youngest');
  t.match(desk.report, { busy: 2, lent: { seats: 2, ends: { recalled: 1 } } });
});

t.test('without the setting nothing is recognised', async (t) => {
  const desk = new QueueDesk(4);
  const ticket = desk.enter('a', { session: { name: 'x' } });
  ticket.ready({ promptTokens: 1000, prefix: prefixHashes(promptOf(1, 1000), 'a') });
  const lease = await desk.seat(ticket);
  lease.prefilled(1000, 0);
  lease.release('done');
  t.match(desk.report, { kept: 0, sessions: { known: 0, turns: { first: 0 } } });
});

t.test('whatever happens, kept seats are free ones, not all for long, and a kept turn never waits', async () => {
  const SEATS = 8;
  const event = fc.record({
    what: fc.constantFrom('turn', 'turn', 'turn', 'single', 'end', 'end', 'end', 'cancel', 'lose', 'resume', 'pass'),
    account: fc.constantFrom('a', 'b', 'c'),
    session: fc.integer({ min: 0, max: 6 }),
    ms: fc.integer({ min: 0, max: 3000 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 80 }), async (events) => {
      const desk = new Desk([
        { seats: SEATS / 2, contextPerSeat: 1e6 },
        { seats: SEATS / 2, contextPerSeat: 1e6 },
      ]);
      const leases: Lease[] = [];
      const tickets: Ticket[] = [];
      const follow = (ticket: Ticket): void => {
        tickets.push(ticket);
        void ticket.outcome.then((outcome) => outcome.kind === 'seated' && leases.push(outcome.lease));
      };
      for (const { what, account, session, ms } of events) {
        const before = desk.report.sessions.turns.kept;
        const [seatsBefore, waitingBefore] = [desk.report.busy, desk.report.waiting];
        if (what === 'turn' || what === 'single') {
          try {
            follow(what === 'turn' ? desk.turn(account, session) : desk.single(account));
          } catch {
            // Refused.
          }
          const isKeptTurn = desk.report.sessions.turns.kept > before;
          if (isKeptTurn && (desk.report.busy <= seatsBefore || desk.report.waiting > waitingBefore))
            throw new Error('a turn whose seat was kept waits');
        }
        const lease = leases[session % Math.max(1, leases.length)];
        if (what === 'end') {
          lease?.prefilled(FIRST_TOKENS * TOKEN_MS, 0);
          lease?.release('done');
          leases.splice(leases.indexOf(lease as Lease), lease ? 1 : 0);
        }
        if (what === 'cancel') tickets[session % Math.max(1, tickets.length)]?.cancel('disconnected');
        if (what === 'lose') desk.queue.pause(session % 2);
        if (what === 'resume') desk.queue.resume(1 + (ms % (SEATS / 2)), session % 2);
        desk.clock.advance(ms);
        await later();
        const { busy, kept, replicas } = desk.report;
        if (kept === SEATS && ms >= 250) throw new Error('all seats are kept');
        for (const each of replicas) {
          if (each.kept > 0 && each.busy + each.kept > each.seats) throw new Error(`${busy} busy and ${kept} kept`);
        }
      }
      desk.queue.drain();
      await later();
      for (const lease of leases) lease.release('done');
      const { busy, kept, accounts } = desk.report;
      if (busy + kept > 0 || accounts.some((account) => account.kept > 0)) throw new Error('seats are left');
      if (desk.clock.pending > 0) throw new Error('timers are left');
    }),
    { numRuns: rounds({ short: 50, long: 3000 }) },
  );
});
