/**
 * Sends the queries of deploy/kubernetes/autoscaling/keda.yaml to Debian’s Prometheus: its answers decide on replicas.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import { at, listAt, manifest, textAt } from '../deploy/manifests.js';
import { freePort } from '../support/free-port.js';
import { makeKey } from '../support/keys.js';
import { eventually } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { Prometheus } from './prometheus.js';

/** The environment of the sidecar; not `development`, in which a key is created and printed. */
const ENVIRONMENT = 'staging';
const SEATS = 2;
/** Concurrent requests for them. */
const AT_ONCE = 4;
/**
 * A bucket of the waits is at most so many times as wide as the one before it, and a quantile may lie anywhere in one.
 */
const BUCKET = 5;

/** A trigger’s query as written; Prometheus.start() names its job as the query does. */
function queryOf(trigger: string): string {
  const found = listAt(manifest('ScaledObject'), 'spec.triggers').find((one) => at(one, 'name') === trigger);
  const query = textAt(found, 'metadata.query');
  if (!query.includes('job="ra-sidecar"')) throw new Error(`another job: ${query}`);
  return query;
}

const QUEUE_TIME = queryOf('queue-time');
const FILLED = queryOf('replicas-filled');

/** The query with another value. Throws if nothing was replaced. */
function changed(query: string, from: string, to: string): string {
  if (!query.includes(from)) throw new Error(`no ${from} in ${query}`);
  return query.replaceAll(from, to);
}

type Label = 'interactive' | 'batch';

/** A sidecar with two seats, a Prometheus that scrapes it, and callers of two classes. */
class Harness {
  readonly #sidecar: Sidecar;
  readonly #prometheus: Prometheus;
  readonly #keys: ReadonlyMap<Label, string>;

  private constructor(sidecar: Sidecar, prometheus: Prometheus, keys: ReadonlyMap<Label, string>) {
    this.#sidecar = sidecar;
    this.#prometheus = prometheus;
    this.#keys = keys;
  }

  static async start(t: Test): Promise<Harness> {
    const dataDir = await mkdtemp(join(tmpdir(), 'ra-autoscaling-'));
    t.teardown(() => rm(dataDir, { recursive: true, force: true }));
    const entitlements = { [ENVIRONMENT]: { models: 'all' } } as const;
    const keys = (['interactive', 'batch'] as const).map((label) => {
      return { label, ...makeKey({ account: label, entitlements, class: label }) };
    });
    await writeKeyFile(join(dataDir, 'keys.json'), { version: 1, keys: keys.map(({ stored }) => stored) });
    const config = { ...(await chatOnly(SEATS)), dataDir, environment: ENVIRONMENT, queue: { maxWaitMs: 60_000 } };
    const sidecar = await Sidecar.start(t, { config });
    const prometheus = await Prometheus.start(t, `127.0.0.1:${sidecar.operatorsPort}`);
    return new Harness(sidecar, prometheus, new Map(keys.map(({ label, key }) => [label, key])));
  }

  /** The values of a query; none: Prometheus has no result. */
  async ask(query: string): Promise<string[]> {
    return (await this.#prometheus.query(query)).map(({ value }) => value[1]);
  }

  /** Runs requests of which some must wait until Prometheus has their waits. Resolves with the longest, s. */
  async wait(label: Label): Promise<number> {
    // A rate needs an increase, which starts from the first request.
    await this.#reply(label);
    await this.#counted(label, 1);
    const waits = await Promise.all(Array.from({ length: AT_ONCE }, () => this.#reply(label)));
    await this.#counted(label, 1 + AT_ONCE);
    return Math.max(...waits) / 1000;
  }

  /**
   * Callers who each send the next request once the last one ended, so that some wait however fast the engine is. Resolves
   * once they wait, with a function that disconnects them.
   */
  async hold(label: Label): Promise<() => Promise<void>> {
    const leave = new AbortController();
    const caller = async (): Promise<void> => {
      while (!leave.signal.aborted) {
        await this.#post(label, 1900, leave.signal).then(
          (response) => response.text().catch(() => undefined),
          () => undefined,
        );
      }
    };
    const held = Array.from({ length: AT_ONCE }, caller);
    await this.#sidecar.reaches('ra_sidecar_waiting_requests', AT_ONCE - SEATS, { model: CHAT });
    return async () => {
      leave.abort();
      await Promise.all(held);
    };
  }

  #post(label: Label, tokens: number, signal?: AbortSignal): Promise<Response> {
    const messages = [{ role: 'user', content: 'Tell me of the sea.' }];
    // A reward for repetition makes greedy decoding continue to the limit.
    const body = { model: CHAT, messages, temperature: 0, frequency_penalty: -2, max_tokens: tokens, stream: true };
    const key = this.#keys.get(label) ?? null;
    return this.#sidecar.post('/chat/completions', body, { key, ...(signal && { signal }) });
  }

  /** Runs one request; resolves with its wait, ms. */
  async #reply(label: Label): Promise<number> {
    const response = await this.#post(label, 200);
    await response.text();
    if (response.status !== 200) throw new Error(`answered ${response.status}`);
    return Number(/ra-queue;dur=([\d.]+)/.exec(response.headers.get('server-timing') ?? '')?.[1]);
  }

  async #counted(label: Label, requests: number): Promise<void> {
    await eventually(`${requests} waits of ${label}`, async () => {
      const [seen] = await this.ask(`sum(ra_sidecar_queue_wait_seconds_count{class="${label}"})`);
      return Number(seen) === requests;
    });
  }
}

t.test('a sidecar as KEDA’s queries see it', async (t) => {
  const harness = await Harness.start(t);

  await t.test('without callers: exactly 0, which is a value', async (t) => {
    t.strictSame(await harness.ask(QUEUE_TIME), ['0']);
    t.strictSame(await harness.ask(FILLED), ['0']);
  });

  await t.test('waiting batch requests ask for no replica', async (t) => {
    const longest = await harness.wait('batch');
    t.ok(longest > 0.05, `${longest} s`);
    const [all] = await harness.ask(changed(QUEUE_TIME, ',class!="batch"', ''));
    t.ok(Number(all) > longest / BUCKET, `Prometheus has them: ${all}`);
    t.strictSame(await harness.ask(QUEUE_TIME), ['0']);
  });

  await t.test('other waiting requests: the wait of nine of ten', async (t) => {
    const longest = await harness.wait('interactive');
    t.ok(longest > 0.05, `${longest} s`);
    const reported = await harness.ask(QUEUE_TIME);
    t.equal(reported.length, 1);
    t.ok(
      Number(reported[0]) > longest / BUCKET && Number(reported[0]) < longest * BUCKET,
      `${reported.join()} of ${longest} s`,
    );
  });

  await t.test('replicas that the requests fill, running and waiting, whatever the number of seats', async (t) => {
    const leave = await harness.hold('interactive');
    await eventually('all of them', async () => (await harness.ask(FILLED)).join() === String(AT_ONCE / SEATS));
    await leave();
    await eventually('none', async () => (await harness.ask(FILLED)).join() === '0');
    t.pass('and none after the callers disconnected');
  });

  await t.test('after the range of the query without requests: 0 again', async (t) => {
    const soon = changed(QUEUE_TIME, '[2m]', '[5s]');
    await eventually('0', async () => (await harness.ask(soon)).join() === '0');
    t.pass('and not an empty result');
  });
});

t.test('a Prometheus without a sidecar returns no value, and KEDA keeps the replicas', async (t) => {
  const prometheus = await Prometheus.start(t, `127.0.0.1:${await freePort()}`);
  t.equal((await prometheus.query('up{job="ra-sidecar"}'))[0]?.value[1], '0');
  t.strictSame(await prometheus.query(QUEUE_TIME), []);
  t.strictSame(await prometheus.query(FILLED), []);
  for (const trigger of listAt(manifest('ScaledObject'), 'spec.triggers')) {
    t.equal(textAt(trigger, 'metadata.ignoreNullValues'), 'false', 'KEDA treats an empty result as an error');
  }
});
