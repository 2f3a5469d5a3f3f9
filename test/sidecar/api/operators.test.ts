import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import { admission, admissionPage, jsonBody } from '../../../sidecar/api/operators.js';
import type { HostedModel } from '../../../sidecar/api/services.js';
import type { Exchange, Reply } from '../../../sidecar/http/exchange.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';

t.test('the page names the busiest hundred accounts of each model and adds up the others', async (t) => {
  const clock = new FakeClock();
  const config = { maxWaitMs: 1e9, waitingPerSeat: 1000, waitingBytes: 10_000 };
  const queue = new SeatQueue({ clock, random: () => 0, config, seats: 1 });
  const enter = (account: string): void => {
    const ticket = queue.enter({ account, weight: 4, bytes: 7, seatsWanted: 1, user: 'secret' });
    if ('kind' in ticket) throw new Error(ticket.reason);
    ticket.ready({ promptTokens: 1 });
    void ticket.outcome.then((outcome) => {
      if (outcome.kind !== 'seated') return;
      clock.advance(1000.4);
      outcome.lease.release('done');
    });
  };
  enter('acme');
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  queue.pause();
  for (let i = 0; i < 101; i += 1) enter(`t${i}`);
  enter('acme');

  const engine = new FakeEngine();
  const scopeOf = (): string => 'all';
  const model: HostedModel = { id: 'm', kind: 'chat', ownedBy: 'x', created: 1, engine, scopeOf, queue };
  let reply: Reply | undefined;
  const exchange = { reply: (given: Reply) => (reply = given) };
  admission(exchange as Pick<Exchange, 'reply'> as Exchange, { models: new Map([['m', model]]) });
  t.equal(reply?.status, 200);
  const page = JSON.parse(String(reply?.body)) as { models: { accounts: object[] }[] };
  const [first, ...more] = page.models;
  t.equal(more.length, 0);
  const { accounts = [], ...rest } = first ?? {};
  t.strictSame(rest, {
    model: 'm',
    seats: 1,
    busy: 0,
    kept: 0,
    waiting: 102,
    waitingBytes: 714,
    paused: true,
    replicas: [{ seats: 1, busy: 0, kept: 0, lent: 0, up: false, tokenTimeRatio: null }],
    fairness: null,
    refused: {},
    released: { done: 1 },
    overload: {
      standing: false,
      // All requests wait or were seated.
      load: 1,
      leftMs: 0,
      patience: { 'first-token': { p10: null, p50: null, p90: null }, end: { p10: null, p50: null, p90: null } },
      retries: { reserved: 0, none: 0, kept: 0 },
    },
    sessions: {
      known: 0,
      turns: { kept: 0, cold: 0, first: 0 },
      keeps: { continued: 0, expired: 0, taken: 0, lost: 0 },
    },
    lent: {
      // No seat is lent.
      headroom: 1,
      seats: 0,
      waiting: 0,
      ends: { ended: 0, recalled: 0, queued: 0 },
      seatMs: 0,
      recalledMs: 0,
      accounts: [],
    },
    // This and the times of accounts are rounded.
    nextVirtualMs: 250,
    others: { accounts: 2, waiting: 2, running: 0, seatMs: 0 },
  });
  t.equal(accounts.length, 100);
  t.strictSame(accounts[0], {
    account: 'acme',
    weight: 4,
    waiting: 1,
    running: 0,
    kept: 0,
    virtualMs: 250,
    seatMs: 1000,
    holdMs: 1000,
    calibration: 1,
    predictedWaitMs: 102_041,
    classes: [
      { class: 'standard', waiting: 1, running: 0, kept: 0, holdMs: 1000, calibration: 1, predictedWaitMs: 102_041 },
    ],
  });
  t.notMatch(reply?.body, 'secret');
});

t.test('a body that cannot be read is refused with its reason', async (t) => {
  const codeOf = async (kind: string, bytes?: Uint8Array): Promise<unknown> => {
    const head = { header: () => 'application/json' };
    const exchange = { head, body: () => Promise.resolve({ kind, bytes }) } as unknown as Exchange;
    const read = await jsonBody(exchange, 8);
    return read !== undefined && 'code' in read ? `${read.status} ${read.code}` : read;
  };
  t.equal(await codeOf('too-large'), '413 payload_too_large');
  t.equal(await codeOf('no-room'), '429 capacity_exceeded');
  t.equal(await codeOf('silent'), '400 bad_request');
  t.equal(await codeOf('body'), '429 capacity_exceeded', 'freed before it was used');
  t.equal(await codeOf('gone'), undefined);
  t.strictSame(await codeOf('body', new Uint8Array(2)), new Uint8Array(2));
});

t.test('times on the page are whole ms, ratios have three digits, and all else is as the queue has it', async (t) => {
  const config = { maxWaitMs: 1e9, waitingPerSeat: 1000, waitingBytes: 10_000 };
  const queue = new SeatQueue({ clock: new FakeClock(), random: () => 0, config, seats: 1 });
  const { overload, lent, replicas, ...report } = queue.report(1);
  const page = admissionPage({
    ...report,
    fairness: 0.98765,
    replicas: replicas.map((each) => ({ ...each, tokenTimeRatio: 1.23456 })),
    overload: {
      ...overload,
      load: 1.23456,
      leftMs: 1.6,
      patience: { 'first-token': { p10: 1.6, p50: 2.6, p90: 3.6 }, end: { p10: 0.4, p50: null, p90: null } },
    },
    lent: { ...lent, seatMs: 1.6, recalledMs: 0.4, accounts: [{ account: 'a', seats: 1, waiting: 2, seatMs: 2.6 }] },
    nextVirtualMs: 1.6,
    others: { ...report.others, seatMs: 1.6 },
  });
  t.same(
    [page.fairness, page.replicas[0]?.tokenTimeRatio, page.overload.load, page.overload.leftMs],
    [0.98765, 1.235, 1.235, 2],
  );
  t.same(page.overload.patience, { 'first-token': { p10: 2, p50: 3, p90: 4 }, end: { p10: 0, p50: null, p90: null } });
  t.same([page.lent.seatMs, page.lent.recalledMs, page.nextVirtualMs, page.others.seatMs], [2, 0, 2, 2]);
  t.same(page.lent.accounts, [{ account: 'a', seats: 1, waiting: 2, seatMs: 3 }]);
});
