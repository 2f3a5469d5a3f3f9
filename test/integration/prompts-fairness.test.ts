/**
 * Twelve senders of one account that keep the prompt hosts as busy as they can, and the chat of another account.
 *
 * `node dist/test/integration/prompts-fairness.test.js 300`: the long form, with so many chats before and during the attack, whose
 * p99 is compared too. For a machine that does nothing else. Each part reports its figures as a comment.
 */
import t from 'tap';
import { asLong, chatWith, EXPENSIVE_SCHEMAS, INLINE_BYTES, SMALL_PRODUCTS } from '../support/expensive-schemas.js';
import { ExpensiveSenders, REFUND, startForTwoAccounts, timesOf } from '../support/expensive-senders.js';
import { rounds } from '../support/long-form.js';
import { SHORT } from '../support/open-stream.js';
import { childrenOf, usedCpuMs } from '../support/processes.js';
import { RawConnection } from '../support/raw-http.js';
import { CHAT } from '../support/sidecar.js';

const SENDERS = 12;
const CHATS = Number(process.argv[2] ?? rounds({ short: 4, long: 15 }));
const EXPENSIVE = Object.values(EXPENSIVE_SCHEMAS).map((schema) => chatWith(schema));
const MOST_EXPENSIVE = chatWith(EXPENSIVE_SCHEMAS[SMALL_PRODUCTS]);

const sorted = (ms: readonly number[]): readonly number[] => [...ms].sort((a, b) => a - b);
const quantile = (ms: readonly number[], part: number): number =>
  sorted(ms)[Math.min(ms.length - 1, Math.floor(part * ms.length))] ?? 0;

/** For all parts; each begins when the previous one’s requests are answered. */
const { sidecar, hostile, visitor } = await startForTwoAccounts(t, {}, true);

/** With so many requests their p99 is that of more than one. */
const ENOUGH_FOR_P99 = 100;

/** Requests of the other account, one after another. Returns the time of each, in ms. */
const visits = (body: string, path?: string): Promise<number[]> => timesOf(sidecar, visitor, CHATS, body, path);

for (const lane of ['short', 'long'] as const) {
  const ofLane = (body: string): string => (lane === 'short' ? body : asLong(body));

  t.test(`twelve senders of expensive ${lane} bodies do not delay another account`, async (t) => {
    const body = ofLane(JSON.stringify(SHORT));
    const expensive = EXPENSIVE.map(ofLane);
    if (lane === 'short') t.ok(expensive.every(({ length }) => length <= INLINE_BYTES));
    const decision = ofLane(REFUND);
    await visits(body);
    await visits(decision, '/decisions');
    const idle = { chat: await visits(body), decision: await visits(decision, '/decisions') };
    const senders = new ExpensiveSenders(sidecar, hostile, SENDERS, expensive);
    t.teardown(() => senders.stop());
    await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
    const beside = { chat: await visits(body), decision: await visits(decision, '/decisions') };
    t.same([...(await senders.stop())], [422]);
    t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 0);
    for (const what of ['chat', 'decision'] as const) {
      for (const [when, ms] of Object.entries({ idle: idle[what], beside: beside[what] })) {
        const [half, most] = [quantile(ms, 0.5).toFixed(1), quantile(ms, 0.99).toFixed(1)];
        t.comment(`${lane} ${what}, ${when}: median ${half} ms, p99 ${most} ms`);
      }
      const median = quantile(beside[what], 0.5);
      t.ok(
        median <= 5 * quantile(idle[what], 0.5) + 200,
        `${what}: without shares it waited for all of them, 4 s and more`,
      );
      if (CHATS < ENOUGH_FOR_P99) continue;
      t.ok(quantile(beside[what], 0.99) <= 2 * quantile(idle[what], 0.99) + 20, `${what}: p99`);
    }
  });
}

t.test('another account’s expensive body is next, not behind all that were sent before', async (t) => {
  const senders = new ExpensiveSenders(sidecar, hostile, SENDERS, [MOST_EXPENSIVE]);
  t.teardown(() => senders.stop());
  await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
  const before: number[] = [];
  for (let i = 0; i < CHATS; i++) {
    const from = senders.answers;
    const response = await sidecar.post('/chat/completions', MOST_EXPENSIVE, { key: visitor });
    await response.arrayBuffer();
    before.push(senders.answers - from);
    t.equal(response.status, 422);
  }
  await senders.stop();
  // Counted, not timed, so that it is true on a busy machine: in order of arrival all senders would be answered before
  // each of these.
  t.comment(`senders answered during a request: median ${quantile(before, 0.5)} of ${SENDERS}`);
  t.ok(quantile(before, 0.5) <= SENDERS / 2, `${quantile(before, 0.5)}`);
});

t.test('requests of disconnected callers are not worked on', async (t) => {
  const headers = { Authorization: `Bearer ${hostile}`, 'Content-Type': 'application/json' };
  const connections = await Promise.all(Array.from({ length: 30 }, () => RawConnection.open(sidecar.port)));
  for (const connection of connections) connection.request('POST', '/v1/chat/completions', headers, MOST_EXPENSIVE);
  // Some are being worked on by then.
  await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
  for (const connection of connections) connection.close();
  const hosts = childrenOf(sidecar.pid).filter(({ command }) => command.includes('prompts/host.js'));
  const used = (): number => hosts.reduce((sum, { pid }) => sum + usedCpuMs(pid), 0);
  const from = used();
  t.equal((await sidecar.post('/chat/completions', SHORT, { key: visitor })).status, 200);
  await sidecar.reaches('ra_sidecar_waiting_requests', 0, { model: CHAT });
  // Processor time, so that it is true on a busy machine.
  t.equal(hosts.length, 2);
  t.ok(used() - from < 5000, `the hosts worked for ${used() - from} ms; it was 21 s when they worked on all`);
  t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 0);
});
