/**
 * The contract of every sink: all billed events arrive, in order for each account, the cursor moves only after the
 * acknowledgement, and a repeated event is the same to the last byte.
 */
import type { Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { UsageEvent, DeliverySink } from '../../sidecar/usage/delivery/sink.js';
import type { DeadLetter, LoadedCursor } from '../../sidecar/usage/delivery/files.js';
import { Delivery } from '../../sidecar/usage/delivery/delivery.js';
import { RecordingLog } from './in-process.js';
import { MemorySource } from './memory-delivery.js';
import { eventually } from './processes.js';
import { usageRecord } from './usage-records.js';

/** The peer of a sink, and how it can be broken. */
export interface SinkPeer {
  /** Another sink to it, with a timeout short enough for a test. The contract closes it. */
  sink(): DeliverySink;
  /**
   * Bodies of the events that it stored, in order, repeated ones too. Never events that it did not acknowledge safely.
   */
  stored(): Promise<readonly string[]>;
  /** Ways to break it, each until heal(). */
  readonly faults: Readonly<Record<string, () => void | Promise<void>>>;
  heal(): void | Promise<void>;
  /** An event with a text of so many bytes is refused; undefined: no event is too long. */
  readonly tooLong: number | undefined;
}

/** An account’s name may contain anything that is allowed in one: none of it may affect a subject or a key. */
const ACCOUNTS = ['acme', 'a.b', 'x > *', 'ünï'];

/** A sidecar’s delivery over a spool in memory, which outlives it. */
class Harness {
  readonly source = new MemorySource();
  readonly letters: DeadLetter[] = [];
  readonly log = new RecordingLog();
  readonly #peer: SinkPeer;
  #saved: LoadedCursor = { kind: 'none' };
  /** Positions that were saved while an event before them was not stored. */
  readonly early: string[] = [];
  #made = 0;

  constructor(peer: SinkPeer) {
    this.#peer = peer;
  }

  get saved(): number {
    return this.#saved.kind === 'at' ? MemorySource.index(this.#saved.position) : 0;
  }

  /** As a crash between an answer and its cursor leaves it. */
  loseCursor(): void {
    this.#saved = { kind: 'none' };
  }

  /** Bills so many requests of all accounts in turn. */
  bill(count: number, rest: Partial<UsageRecord> = {}): void {
    for (let i = 0; i < count; i += 1) {
      const account = ACCOUNTS[this.#made % ACCOUNTS.length] ?? '';
      const id = `n${this.#made}`;
      this.source.records.push(usageRecord(id, 'open', { account }), usageRecord(id, 'close', { account, ...rest }));
      this.#made += 1;
    }
    this.source.durable = this.source.records.length;
  }

  /** Ids of billed events, of one account or of all. */
  billed(account?: string): string[] {
    const closes = this.source.records.filter(({ kind }) => kind === 'close');
    return closes.filter((record) => account === undefined || record.account === account).map(({ id }) => id);
  }

  async start(stopMs = 5000): Promise<{ readonly delivery: Delivery; readonly stop: () => Promise<void> }> {
    const sink = this.#peer.sink();
    const delivery = new Delivery({
      clock: systemClock,
      date: Date.now,
      random: Math.random,
      spool: this.source,
      sink,
      cursor: {
        load: () => Promise.resolve(this.#saved),
        save: (position) => this.#save(MemorySource.index(position)),
      },
      bury: (letters) => {
        this.letters.push(...letters);
        return Promise.resolve(true);
      },
      keepFrom: () => ({ segment: Infinity, offset: 0 }),
      eventSource: '/contract',
      limits: { maxEvents: 7, maxBytes: 1 << 20, maxAgeMs: 0, backoffMinMs: 1, backoffMaxMs: 20, stopMs },
      log: this.log,
      counts: { delivered: () => undefined, refused: () => undefined, retried: () => undefined },
    });
    await delivery.start();
    return {
      delivery,
      stop: async () => {
        await delivery.stop();
        await Promise.all([sink.close(), sink.close()]);
      },
    };
  }

  async #save(index: number): Promise<void> {
    const there = new Set((await this.#peer.stored()).map((body) => eventOf(body).id));
    for (const { id, kind } of this.source.records.slice(0, index)) {
      const buried = this.letters.some(({ event }) => event.id === id);
      if (kind === 'close' && !there.has(id) && !buried) this.early.push(id);
    }
    this.#saved = { kind: 'at', position: MemorySource.at(index) };
  }

  /** Waits until all is settled. */
  async delivered(): Promise<void> {
    await eventually('all is delivered', () => this.saved === this.source.durable);
  }

  async waits(times: number): Promise<void> {
    const count = (): number => this.log.lines.filter(({ event }) => event === 'usage delivery waits').length;
    await eventually('the fault shows', () => count() >= times);
  }
}

/** Runs the contract. `open`: an empty peer, closed with the test. */
export function sinkContract(t: Test, name: string, open: (t: Test) => Promise<SinkPeer>): void {
  t.test(
    `${name}: whatever breaks, all events arrive in order for each account, and the cursor only follows`,
    async (t) => {
      const peer = await open(t);
      const harness = new Harness(peer);
      const { delivery, stop } = await harness.start();
      let faults = 0;
      for (const [fault, begin] of [...Object.entries(peer.faults), ...Object.entries(peer.faults)]) {
        const before = harness.saved;
        await begin();
        harness.bill(19);
        delivery.notify();
        await harness.waits((faults += 1));
        t.equal(harness.saved, before, `${fault}: nothing is passed`);
        await peer.heal();
        await harness.delivered();
        // How often it failed until that was noticed does not matter.
        faults = harness.log.lines.filter(({ event }) => event === 'usage delivery waits').length;
      }
      await stop();
      t.strictSame(harness.early, [], 'the cursor passed no event that was not stored');
      t.strictSame(harness.letters, [], 'a fault is no refusal');
      await check(t, harness, peer);
    },
  );

  t.test(`${name}: an event that it never accepts is a dead letter, and its account continues after it`, async (t) => {
    const peer = await open(t);
    if (peer.tooLong === undefined) return;
    const harness = new Harness(peer);
    harness.bill(5);
    harness.bill(1, { requestId: 'x'.repeat(peer.tooLong) });
    harness.bill(9);
    const { stop } = await harness.start();
    await harness.delivered();
    await stop();
    t.strictSame(
      harness.letters.map(({ event }) => event.id),
      ['n5'],
    );
    t.ok((harness.letters[0]?.status ?? 0) > 0, 'with the peer’s own code for the reason');
    await check(t, harness, peer);
  });

  t.test(`${name}: a stop waits no longer than its bound, and the next start continues`, async (t) => {
    const peer = await open(t);
    const harness = new Harness(peer);
    const [begin] = Object.values(peer.faults);
    await begin?.();
    harness.bill(3);
    const first = await harness.start(20);
    await Promise.all([first.stop(), first.stop()]);
    t.equal(harness.saved, 0);
    await peer.heal();
    const second = await harness.start();
    await harness.delivered();
    await second.stop();
    await check(t, harness, peer);
  });

  t.test(
    `${name}: after a crash before the cursor was saved the same events are sent again, to the last byte`,
    async (t) => {
      const peer = await open(t);
      const harness = new Harness(peer);
      harness.bill(9);
      for (let life = 0; life < 2; life += 1) {
        const { stop } = await harness.start();
        await harness.delivered();
        await stop();
        harness.loseCursor();
      }
      await check(t, harness, peer);
    },
  );
}

async function check(t: Test, harness: Harness, peer: SinkPeer): Promise<void> {
  const bodies = await peer.stored();
  const first = new Map<string, string>();
  for (const body of bodies) {
    const { id } = eventOf(body);
    t.equal(first.get(id) ?? body, body, `${id} is the same each time`);
    if (!first.has(id)) first.set(id, body);
  }
  const buried = new Set(harness.letters.map(({ event }) => event.id));
  for (const account of ACCOUNTS) {
    const ids = [...first].filter(([, body]) => eventOf(body).subject === account).map(([id]) => id);
    t.strictSame(
      ids,
      harness.billed(account).filter((id) => !buried.has(id)),
      `${account}: all of it, in order`,
    );
  }
  t.equal(first.size + buried.size, harness.billed().length);
}

function eventOf(body: string): UsageEvent {
  return JSON.parse(body) as UsageEvent;
}
