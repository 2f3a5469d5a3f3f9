import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { UsageEvent, SinkAnswer } from '../../sidecar/usage/delivery/sink.js';
import type { Delivery } from '../../sidecar/usage/delivery/delivery.js';
import { DeliveryHarness, MemorySource, turn } from './memory-delivery.js';
import { usageRecord } from './usage-records.js';

const ACCOUNTS = ['a', 'b', 'c'];
const KINDS = ['open', 'progress', 'close', 'close', 'close'] as const;

/** What a sink does with a batch, selected by a number; the last is the most likely. */
const MOODS = ['down', 'halves', 'names', 'lies', 'well', 'well', 'well'] as const;

/** Never: the process that waits for it was killed. */
const DEAD = new Promise<never>(() => undefined);

/**
 * Drives a delivery by random numbers: records arrive and become durable, time passes, the sink accepts, refuses or
 * fails, and the process is killed before or after any step with an effect. It keeps its own model and compares.
 */
export class DeliveryWalk {
  readonly harness = new DeliveryHarness();
  crashes = 0;
  /** Events that the sink got after it had accepted them. */
  repeats = 0;
  #delivery: Delivery | undefined;
  /** By id, as they were first sent. */
  readonly #sent = new Map<string, string>();
  /** Ids that the sink accepted, in the order in which it did so first. */
  readonly #accepted = new Set<string>();
  /** The next answers, one a digit; 0: success from here on. */
  #moods = 0;
  /** Steps with an effect until the process is killed; undefined: it is not. */
  #fuse: number | undefined;
  #dead = false;
  readonly #problems: string[] = [];
  /** Counts processes: steps of a killed process do nothing. */
  #life = 0;

  constructor() {
    const { harness } = this;
    harness.answer = (batch) => this.#answer(batch);
    harness.beforeSave = async (position) => {
      await this.#step();
      const before = harness.source.records.slice(0, MemorySource.index(position));
      for (const record of before) this.#check(this.#isSettled(record), `the cursor passed ${record.id}`);
      this.#check(harness.savedCount <= before.length, 'the cursor went back');
    };
    harness.beforeBury = () => this.#step();
  }

  async event(value: number): Promise<void> {
    const { source } = this.harness;
    const [what, detail] = [value % 16, value >> 4];
    if (this.#delivery === undefined) {
      this.#delivery = await this.harness.start({ maxAgeMs: 20, maxEvents: 4 });
    }
    if (what < 6) this.#append(detail);
    else if (what < 9) {
      source.durable = source.records.length;
      this.#delivery.notify();
    } else if (what < 13) await this.harness.pass(detail % 3000);
    else if (what < 15) this.#moods = detail;
    else this.#fuse = detail % 4;
    await turn();
    if (this.#dead) this.#crash();
    if (this.#problems.length > 0) throw new Error(this.#problems.join('; '));
  }

  /** The sink works and nothing is killed any more: all durable records are settled. */
  async finish(): Promise<void> {
    const { harness } = this;
    this.#crash();
    this.#moods = 0;
    const { source } = harness;
    const delivery = await harness.start({ maxAgeMs: 20, maxEvents: 4 });
    await delivery.stop();
    this.#check(
      harness.savedCount === source.durable || this.#closes().length === 0 || this.#idle(),
      'it did not finish',
    );
    for (const { id } of this.#closes()) {
      this.#check(this.#accepted.has(id) || harness.letters.some(({ event }) => event.id === id), `${id} was lost`);
    }
    // An event that a sink refused, and accepted after a crash, came when it came.
    const refused = new Set(harness.letters.map(({ event }) => event.id));
    const taken = [...this.#accepted].filter((id) => !refused.has(id));
    for (const account of ACCOUNTS) {
      const first = taken.filter((id) => id.startsWith(account)).map((id) => Number(id.slice(1)));
      this.#check(
        first.every((n, i) => i === 0 || n > (first[i - 1] ?? 0)),
        `${account} is out of order: ${first.join()}`,
      );
    }
    if (this.#problems.length > 0) throw new Error(this.#problems.join('; '));
  }

  #append(detail: number): void {
    const account = ACCOUNTS[detail % 3] ?? 'a';
    const kind = KINDS[(detail >> 2) % KINDS.length] ?? 'close';
    // An `x` marks an event that a sink refuses with a given probability.
    const bad = (detail >> 5) % 4 === 0 ? { route: 'x' } : {};
    const { records } = this.harness.source;
    records.push(usageRecord(`${account}${records.length}`, kind, { account, ...bad }));
  }

  async #answer(batch: readonly UsageEvent[]): Promise<SinkAnswer> {
    await this.#step();
    for (const event of batch) {
      const text = JSON.stringify(event);
      this.#check((this.#sent.get(event.id) ?? text) === text, `${event.id} changed`);
      this.#sent.set(event.id, text);
    }
    const bad = batch.flatMap(({ data }, i) => (data.route === 'x' ? [i] : []));
    const mood = this.#moods === 0 ? 'well' : MOODS[this.#moods % MOODS.length];
    this.#moods = Math.floor(this.#moods / MOODS.length);
    if (mood === 'down') return { kind: 'later', why: 'down' };
    if (mood === 'lies') return { kind: 'refused', status: 400, indices: [batch.length + 1, -1] };
    if (mood === 'halves' && bad.length > 0) return { kind: 'refused', status: 400 };
    if (mood === 'names' && bad.length > 0) return { kind: 'refused', status: 400, indices: bad };
    for (const { id } of batch) {
      if (this.#accepted.has(id)) this.repeats += 1;
      this.#accepted.add(id);
    }
    // The sink has them; whether the sidecar gets the answer is another matter.
    await this.#step();
    return { kind: 'accepted' };
  }

  /** A point at which the process can be killed. */
  async #step(): Promise<void> {
    const life = this.#life;
    if (this.#fuse !== undefined) {
      this.#fuse -= 1;
      if (this.#fuse < 0) this.#dead = true;
    }
    if (this.#dead) await DEAD;
    await Promise.resolve();
    if (life !== this.#life) await DEAD;
  }

  #crash(): void {
    if (this.#dead) this.crashes += 1;
    this.#dead = false;
    this.#fuse = undefined;
    this.#life += 1;
    this.#delivery = undefined;
    // What was not durable is lost, and later records have new ids.
    const { source } = this.harness;
    source.records.length = source.durable;
  }

  #closes(): UsageRecord[] {
    return this.harness.source.records.slice(0, this.harness.source.durable).filter(({ kind }) => kind === 'close');
  }

  /** Nothing is billed after the cursor, so it need not be saved for these records. */
  #idle(): boolean {
    return this.harness.source.records.slice(this.harness.savedCount).every(({ kind }) => kind !== 'close');
  }

  #isSettled({ id, kind }: UsageRecord): boolean {
    if (kind !== 'close') return true;
    return this.#accepted.has(id) || this.harness.letters.some(({ event }) => event.id === id);
  }

  #check(holds: boolean, what: string): void {
    // Thrown from within the sink it would be a fault for the delivery to survive.
    if (!holds) this.#problems.push(what);
  }
}
