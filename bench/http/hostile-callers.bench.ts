/**
 * What hostile callers cost the others: twelve senders of expensive schemas beside another account's chats and decisions, and
 * connections that read no answer beside other callers' requests and the sidecar's memory.
 */
import { writeFile } from 'node:fs/promises';
import { ExpensiveSenders, REFUND, startForTwoAccounts, timesOf } from '../../test/support/expensive-senders.js';
import { asLong, chatWith, EXPENSIVE_SCHEMAS } from '../../test/support/expensive-schemas.js';
import { SHORT } from '../../test/support/open-stream.js';
import { residentBytes } from '../../test/support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../../test/support/sidecar.js';
import { answersNotToRead, flood, othersBeside, readAnswers } from '../../test/support/unread-answers.js';
import { peakMiB } from '../support/memory.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SENDERS = 12;
/** Requests of the other account, of each kind, with and without the senders. */
const REQUESTS = 300;
/** The goal for the p99 of the others: so many times what it is without hostile callers, and so many ms. */
const SLOWER = 2;
const TURN_MS = 20;

/** Connections that do not read, for each kind of answer. */
const CONNECTIONS = [1, 100, 500];
/** The goal: the most that the sidecar's memory may grow by. */
const GROWTH_MIB = 100;
const MIB = 2 ** 20;

/** As a deployment has it; the tests set it. */
const AS_DEPLOYED = { development: { validateAnswers: false } };

const BODIES: Readonly<Record<string, (body: string) => string>> = { short: (body) => body, long: asLong };
const ASKED: Readonly<Record<string, readonly [body: string, path: string]>> = {
  chat: [JSON.stringify(SHORT), '/chat/completions'],
  decision: [REFUND, '/decisions'],
};

/** Calls `measure`, and ends what that has started. */
async function withTeardowns<T>(measure: (teardowns: Teardowns) => Promise<T>): Promise<T> {
  const teardowns = new Teardowns();
  try {
    return await measure(teardowns);
  } finally {
    await teardowns.run();
  }
}

async function besideSenders(teardowns: Teardowns): Promise<Row[]> {
  const { sidecar, hostile, visitor } = await startForTwoAccounts(teardowns, AS_DEPLOYED);
  const rows: Row[] = [];
  for (const [length, made] of Object.entries(BODIES)) {
    const expensive = Object.values(EXPENSIVE_SCHEMAS).map((schema) => made(chatWith(schema)));
    for (const [what, [body, path]] of Object.entries(ASKED)) {
      const times = (): Promise<number[]> => timesOf(sidecar, visitor, REQUESTS, made(body), path);
      await times();
      const alone = await times();
      const senders = new ExpensiveSenders(sidecar, hostile, SENDERS, expensive);
      teardowns.teardown(async () => {
        await senders.stop();
      });
      await sidecar.reaches('ra_sidecar_account_waiting_requests', (waiting) => waiting > 0, { account: 'hostile' });
      const beside = await times();
      const statuses = [...(await senders.stop())].join(', ');
      if (statuses !== '422') throw new Error(`the senders got ${statuses}`);
      rows.push({
        'the other account’s': `${what}, ${length} body`,
        'alone p50 ms': quantile(alone, 0.5),
        'alone p99 ms': quantile(alone, 0.99),
        'beside p50 ms': quantile(beside, 0.5),
        'beside p99 ms': quantile(beside, 0.99),
        'goal p99 ms': goalMs(alone),
      });
    }
  }
  return rows;
}

/** One round of connections that read nothing, for each kind of answer. */
interface Unread {
  readonly row: Row;
  readonly grewMib: number;
  readonly held: boolean;
}

async function besideUnread(teardowns: Teardowns, connections: number): Promise<Unread> {
  const sidecar = await Sidecar.start(teardowns, { config: { ...(await chatOnly(2)), ...AS_DEPLOYED } });
  const { port, pid } = sidecar;
  await fetch(`http://127.0.0.1:${port}/healthz`);
  const kinds = Object.values(answersNotToRead(sidecar));
  const beforeMib = residentBytes(pid) / MIB;
  // The peak counts from here.
  await writeFile(`/proc/${pid}/clear_refs`, '5');
  let closed = 0;
  const others = await othersBeside(port, async () => {
    for (const kind of kinds) {
      const ended = await Promise.all(Array.from({ length: connections }, () => flood(kind, () => false)));
      closed += ended.filter((each) => each).length;
    }
  });
  const grewMib = (await peakMiB(pid)) - beforeMib;
  const readers = await othersBeside(port, async () => {
    await Promise.all(Array.from({ length: connections }, () => readAnswers(port)));
  });
  const sent = connections * kinds.length;
  const row = {
    'connections of each kind': connections,
    'closed by the sidecar': `${closed} of ${sent}`,
    'memory grew by, MiB': grewMib,
    'others p50 ms': quantile(others, 0.5),
    'others p99 ms': quantile(others, 0.99),
    'beside readers p50 ms': quantile(readers, 0.5),
    'beside readers p99 ms': quantile(readers, 0.99),
  };
  return { row, grewMib, held: closed === sent && quantile(others, 0.99) <= goalMs(readers) };
}

function goalMs(times: readonly number[]): number {
  return SLOWER * quantile(times, 0.99) + TURN_MS;
}

const verdict = (held: boolean): string => (held ? 'Held' : 'Missed');

const rows = await withTeardowns(besideSenders);
await keep('hostile-senders', {
  title: 'Another account beside senders of expensive schemas',
  about: [
    `${SENDERS} senders of one account send chats to \`${CHAT}\` whose schemas take more work than a request may, each as soon as its last one was answered 422. Another account sends ${REQUESTS} requests of each kind, one after another, first alone and then beside the senders; times are until the answer's head. Long bodies go to the other prompt host. The goal is ${SLOWER} times the p99 alone, and ${TURN_MS} ms. Sidecar, senders and the other account share the machine.`,
  ],
  rows,
  conclusions: [
    `${verdict(rows.every((row) => Number(row['beside p99 ms']) <= Number(row['goal p99 ms'])))}: the p99 beside the senders, for each kind of request.`,
  ],
});
const unread: Unread[] = [];
for (const connections of CONNECTIONS) {
  unread.push(await withTeardowns((teardowns) => besideUnread(teardowns, connections)));
}
const most = Math.max(...unread.map(({ grewMib }) => grewMib));
await keep('unread-answers', {
  title: 'Connections that read no answer',
  about: [
    `Each connection sends the same request again and again in one piece and reads nothing, until the sidecar closes it. There are connections for eleven kinds of answers, one kind after another: the API's description and its head, health, an unknown path, an answer without a body, an error, models, chats, metrics, the console's files and its feed. Memory: the peak of the resident memory of the sidecar's process over what it was after one answer. Others: a caller in a thread of its own asks for \`/healthz\` meanwhile; beside readers: while as many connections read the description. All share the machine.`,
  ],
  rows: unread.map(({ row }) => row),
  conclusions: [
    `${verdict(most <= GROWTH_MIB)}: at most ${GROWTH_MIB} MiB more memory (${most.toFixed(0)} at most).`,
    `${verdict(unread.every(({ held }) => held))}: each connection is closed, and the others' p99 is at most ${SLOWER} times that beside readers, and ${TURN_MS} ms.`,
  ],
});
