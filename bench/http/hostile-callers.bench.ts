/**
 * What callers who mean harm cost the others: twelve senders of expensive schemas beside another account's chats and decisions, and
 * connections that read no answer beside other callers' requests and the sidecar's memory.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ExpensiveSenders, timesOf } from '../../test/support/expensive-senders.js';
import { asLong, chatWith, EXPENSIVE_SCHEMAS } from '../../test/support/expensive-schemas.js';
import { makeKey } from '../../test/support/keys.js';
import { SHORT } from '../../test/support/open-stream.js';
import { residentBytes } from '../../test/support/processes.js';
import { CHAT, chatOnly, DECIDE, Sidecar } from '../../test/support/sidecar.js';
import { answersNotToRead, flood, othersBeside, readAnswers } from '../../test/support/unread-answers.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SENDERS = 12;
/** Requests of the other account, of each kind, with and without the senders. */
const VISITS = 300;
/** The goal of item one: the other account's p99, as a multiple of the one without senders, and so many ms. */
const SLOWER = 2;
const TURN_MS = 20;

/** Connections that do not read, for each kind of answer. */
const CONNECTIONS = [1, 100, 500];
/** The goal: the most that the sidecar's memory may grow by. */
const GROWTH_MIB = 100;
const MIB = 2 ** 20;
/** How often its memory is read, ms. */
const WATCH_MS = 2;

const DECISION = JSON.stringify({
  model: DECIDE,
  input: 'Please send the payment back.',
  questions: [{ id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' }],
});

async function besideSenders(): Promise<Row[]> {
  const teardowns = new Teardowns();
  const folder = await mkdtemp(join(tmpdir(), 'ra-hostile-'));
  teardowns.teardown(() => rm(folder, { recursive: true, force: true }));
  const [hostile, visitor] = ['hostile', 'visitor'].map((name) => makeKey({ id: name, account: name }));
  if (!hostile || !visitor) throw new Error('no keys');
  const file = join(folder, 'keys.json');
  await writeFile(file, JSON.stringify({ version: 1, keys: [hostile.stored, visitor.stored] }));
  const { models } = await chatOnly(4);
  const decide = { ...models[0], id: DECIDE, kind: 'decision', seats: 1 };
  const limits = { chat: { perMinute: 0 }, decisions: { perMinute: 0 } };
  const config = { models: [...models, decide], keys: { file }, limits, development: { validateAnswers: false } };
  const sidecar = await Sidecar.start(teardowns, { config });
  const rows: Row[] = [];
  for (const [bodies, made] of [
    ['short', (body: string) => body],
    ['long', asLong],
  ] as const) {
    const asked = {
      chat: { body: made(JSON.stringify(SHORT)), path: '/chat/completions' },
      decision: { body: made(DECISION), path: '/decisions' },
    };
    const expensive = Object.values(EXPENSIVE_SCHEMAS).map((schema) => made(chatWith(schema)));
    const visits = (what: keyof typeof asked): Promise<number[]> =>
      timesOf(sidecar, visitor.key, VISITS, asked[what].body, asked[what].path);
    for (const what of ['chat', 'decision'] as const) {
      await visits(what);
      const alone = await visits(what);
      const senders = new ExpensiveSenders(sidecar, hostile.key, SENDERS, expensive);
      await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
      const beside = await visits(what);
      const statuses = await senders.stop();
      if (statuses.size !== 1 || !statuses.has(422)) throw new Error(`the senders got ${[...statuses].join()}`);
      rows.push({
        'the other’s': `${what}, ${bodies} body`,
        'alone p50 ms': quantile(alone, 0.5),
        'alone p99 ms': quantile(alone, 0.99),
        'beside p50 ms': quantile(beside, 0.5),
        'beside p99 ms': quantile(beside, 0.99),
        'goal p99 ms': SLOWER * quantile(alone, 0.99) + TURN_MS,
      });
    }
  }
  await teardowns.run();
  return rows;
}

async function besideUnread(connections: number): Promise<Row> {
  const teardowns = new Teardowns();
  const config = { ...(await chatOnly(2)), development: { validateAnswers: false } };
  const sidecar = await Sidecar.start(teardowns, { config });
  const { port, pid } = sidecar;
  await readAnswers(port);
  const all = Object.values(answersNotToRead(sidecar));
  const before = residentBytes(pid);
  let most = before;
  let closed = 0;
  const watch = setInterval(() => (most = Math.max(most, residentBytes(pid))), WATCH_MS);
  const others = await othersBeside(port, async () => {
    for (const [at, text] of all) {
      const ended = await Promise.all(Array.from({ length: connections }, () => flood(at, text, () => false)));
      closed += ended.filter((each) => each).length;
    }
  });
  clearInterval(watch);
  const readers = await othersBeside(port, async () => {
    await Promise.all(Array.from({ length: connections }, () => readAnswers(port)));
  });
  await teardowns.run();
  return {
    'connections of each kind': connections,
    kinds: all.length,
    closed: `${closed} of ${connections * all.length}`,
    'memory grew by at most, MiB': (most - before) / MIB,
    'others p50 ms': quantile(others, 0.5),
    'others p99 ms': quantile(others, 0.99),
    'beside readers p50 ms': quantile(readers, 0.5),
    'beside readers p99 ms': quantile(readers, 0.99),
  };
}

const rows = await besideSenders();
await keep('hostile-senders', {
  title: 'Another account beside senders of expensive schemas',
  about: [
    `${SENDERS} senders of one account send chats to \`${CHAT}\` whose schemas take more work than a request may, each as soon as its last one was answered 422. Another account sends ${VISITS} requests of each kind, one after another, first alone and then beside the senders; times are until the answer's head. Long bodies go to the other prompt host. The goal is ${SLOWER} times the p99 alone, and ${TURN_MS} ms. Sidecar, senders and the other account share the machine.`,
  ],
  rows,
  conclusions: [
    `${rows.every((row) => Number(row['beside p99 ms']) <= Number(row['goal p99 ms'])) ? 'Held' : 'Missed'}: the p99 beside the senders is within the goal for each kind of request.`,
  ],
});
const unread: Row[] = [];
for (const connections of CONNECTIONS) unread.push(await besideUnread(connections));
const most = Math.max(...unread.map((row) => Number(row['memory grew by at most, MiB'])));
await keep('unread-answers', {
  title: 'Connections that read no answer',
  about: [
    `Each connection sends the same request again and again in one piece and reads nothing, until the sidecar closes it, for each kind of answer in turn: the API's description, health, errors, chats, metrics, the console's files and its feed. Memory: the resident memory of the sidecar's process, read every ${WATCH_MS} ms, over what it was before. Others: a caller in a thread of its own asks for \`/healthz\` meanwhile; beside readers: while as many connections read the description. All share the machine.`,
  ],
  rows: unread,
  conclusions: [
    `${most <= GROWTH_MIB ? 'Held' : 'Missed'}: at most ${GROWTH_MIB} MiB more memory (${most.toFixed(0)} at most).`,
  ],
});
