/**
 * Twelve senders of one account that keep the prompt hosts as busy as they can, and the chat of another account.
 *
 * `node dist/test/integration/prompts-fairness.test.js 300`: the long form, with so many chats before and during the attack.
 * Each part reports its figures as a comment.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { asLong, chatWith, DEAR_SCHEMAS, INLINE_BYTES } from '../support/dear-schemas.js';
import { makeKey } from '../support/keys.js';
import { rounds } from '../support/long-form.js';
import { SHORT } from '../support/open-stream.js';
import { RawConnection } from '../support/raw-http.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

const SENDERS = 12;
const CHATS = Number(process.argv[2] ?? rounds({ short: 6, long: 15 }));
const DEAR = Object.values(DEAR_SCHEMAS).map((schema) => chatWith(schema));

const folder = await mkdtemp(join(tmpdir(), 'ra-prompts-fairness-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const hostile = makeKey({ id: 'hostile', account: 'hostile' });
const visitor = makeKey({ id: 'visitor', account: 'visitor' });
const keyFile = join(folder, 'keys.json');
await writeFile(keyFile, JSON.stringify({ version: 1, keys: [hostile.stored, visitor.stored] }));

const sorted = (ms: readonly number[]): readonly number[] => [...ms].sort((a, b) => a - b);
const quantile = (ms: readonly number[], part: number): number =>
  sorted(ms)[Math.min(ms.length - 1, Math.floor(part * ms.length))] ?? 0;

/** One for all parts, of which each begins when what the one before sent has been answered. */
const sidecar = await Sidecar.start(t, { config: { ...(await chatOnly(4)), keys: { file: keyFile } } });

/** Chats of the visitor, one after another. Returns how long each took, in ms. */
async function visits(t: Test, body: string): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < CHATS; i++) {
    const from = performance.now();
    const response = await sidecar.post('/chat/completions', body, { key: visitor.key });
    took.push(performance.now() - from);
    await response.arrayBuffer();
    if (response.status !== 200) t.fail(`the visitor is answered ${response.status}`);
  }
  return took;
}

/** Sends dear bodies until `over`, each as soon as the one before is answered. Returns the statuses. */
async function attack(bodies: readonly string[], over: () => boolean): Promise<Set<number>> {
  const statuses = new Set<number>();
  for (let i = 0; !over(); i++) {
    const response = await sidecar.post('/chat/completions', bodies[i % bodies.length], { key: hostile.key });
    await response.arrayBuffer();
    statuses.add(response.status);
  }
  return statuses;
}

for (const lane of ['short', 'long'] as const) {
  const ofLane = (body: string): string => (lane === 'short' ? body : asLong(body));

  t.test(`twelve senders of dear ${lane} bodies hold up no other account`, async (t) => {
    const body = ofLane(JSON.stringify(SHORT));
    const dear = DEAR.map(ofLane);
    if (lane === 'short') t.ok(dear.every(({ length }) => length <= INLINE_BYTES));
    await visits(t, body);
    const idle = await visits(t, body);
    let over = false;
    const senders = Array.from({ length: SENDERS }, () => attack(dear, () => over));
    await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
    const beside = await visits(t, body);
    over = true;
    for (const statuses of await Promise.all(senders)) t.same([...statuses], [422]);
    t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 0);
    for (const [what, ms] of Object.entries({ idle, beside }))
      t.comment(`${lane}, ${what}: median ${quantile(ms, 0.5).toFixed(1)} ms, p99 ${quantile(ms, 0.99).toFixed(1)} ms`);
    t.ok(quantile(beside, 0.5) <= 5 * quantile(idle, 0.5) + 200, 'it waited for all of them before: 10 s and more');
  });
}

t.test('a dear body of another account is next, not behind all that were sent before', async (t) => {
  const [dear = ''] = DEAR;
  let over = false;
  let answers = 0;
  const sender = async (): Promise<void> => {
    while (!over) {
      await (await sidecar.post('/chat/completions', dear, { key: hostile.key })).arrayBuffer();
      answers += 1;
    }
  };
  const senders = Array.from({ length: SENDERS }, sender);
  await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
  const before: number[] = [];
  for (let i = 0; i < CHATS; i++) {
    const from = answers;
    const response = await sidecar.post('/chat/completions', dear, { key: visitor.key });
    await response.arrayBuffer();
    before.push(answers - from);
    t.equal(response.status, 422);
  }
  over = true;
  await Promise.all(senders);
  // Counted, not timed, so that it holds on a busy machine: in order of arrival all senders are answered before each visit.
  t.comment(`senders answered during a visit: median ${quantile(before, 0.5)} of ${SENDERS}`);
  t.ok(quantile(before, 0.5) <= SENDERS / 2, `${quantile(before, 0.5)}`);
});

t.test('what callers sent who are gone is not worked on', async (t) => {
  const [dear = ''] = DEAR;
  const headers = { Authorization: `Bearer ${hostile.key}`, 'Content-Type': 'application/json' };
  const connections = await Promise.all(Array.from({ length: 30 }, () => RawConnection.open(sidecar.port)));
  for (const connection of connections) connection.request('POST', '/v1/chat/completions', headers, dear);
  for (const connection of connections) connection.close();
  t.equal((await sidecar.post('/chat/completions', SHORT, { key: visitor.key })).status, 200);
  await sidecar.reaches('ra_sidecar_waiting_requests', 0, { model: CHAT });
  t.equal(await sidecar.metric('ra_sidecar_prompt_host_restarts_total'), 0);
});
