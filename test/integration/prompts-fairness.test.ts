/**
 * Twelve senders of one account that keep the prompt hosts as busy as they can, and the chat of another account.
 *
 * `node dist/test/integration/prompts-fairness.test.js 300`: the long form, with so many chats before and during the attack, whose
 * p99 is compared too. For a machine that does nothing else. Each part reports its figures as a comment.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { asLong, chatWith, EXPENSIVE_SCHEMAS, INLINE_BYTES } from '../support/expensive-schemas.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { SHORT } from '../support/open-stream.js';
import { chatOnly, DECIDE, Sidecar } from '../support/sidecar.js';

const SENDERS = 12;
const CHATS = Number(process.argv[2] ?? rounds({ short: 4, long: 15 }));
const EXPENSIVE = Object.values(EXPENSIVE_SCHEMAS).map((schema) => chatWith(schema));
const REFUND = JSON.stringify({
  model: DECIDE,
  input: 'Please send the payment back.',
  questions: [{ id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' }],
});

const quantile = (ms: readonly number[], part: number): number =>
  [...ms].sort((a, b) => a - b)[Math.min(ms.length - 1, Math.floor(part * ms.length))] ?? 0;

/** With so many requests their p99 is that of more than one. */
const ENOUGH_FOR_P99 = 100;

const [hostile, visitor] = ['hostile', 'visitor'].map((account) => makeKey({ id: account, account }));
const file = join(t.testdir(), 'keys.json');
writeFileSync(file, JSON.stringify({ version: 1, keys: [hostile?.stored, visitor?.stored] }));
const { models } = await chatOnly(4);
const decide = { ...models[0], id: DECIDE, kind: 'decision', seats: 1 };
const limits = { chat: { perMinute: 0 }, decisions: { perMinute: 0 } };
/** For both parts; the second one begins when the first one’s requests are answered. */
const sidecar = await Sidecar.start(t, {
  stub: true,
  config: { models: [...models, decide], keys: { file }, limits },
});

/** Requests of the other account, one after another. Returns the time of each until its head, ms. */
async function visits(body: string, path = '/chat/completions'): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < CHATS; i++) {
    const from = performance.now();
    const response = await sidecar.post(path, body, { key: visitor?.key ?? '' });
    took.push(performance.now() - from);
    await response.arrayBuffer();
    if (response.status !== 200) throw new Error(`the other account is answered ${response.status}`);
  }
  return took;
}

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
    let over = false;
    const statuses = new Set<number>();
    // Each sends one of the bodies as soon as its last one is answered.
    const send = async (): Promise<void> => {
      for (let i = 0; !over; i++) {
        const response = await sidecar.post('/chat/completions', expensive[i % expensive.length], {
          key: hostile?.key ?? '',
        });
        await response.arrayBuffer();
        statuses.add(response.status);
      }
    };
    const senders = Promise.all(Array.from({ length: SENDERS }, send));
    await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
    const beside = { chat: await visits(body), decision: await visits(decision, '/decisions') };
    over = true;
    await senders;
    t.same([...statuses], [422]);
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
