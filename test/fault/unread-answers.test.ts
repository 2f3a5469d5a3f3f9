/**
 * Callers that send requests in one piece and read no answer: the sidecar’s memory stays bounded and others are served.
 * The first argument is the number of connections for each kind of answer, for longer runs.
 */
import t from 'tap';
import { residentBytes } from '../support/processes.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { answersNotToRead, flood, othersBeside, readAnswers } from '../support/unread-answers.js';
import { rounds } from '../support/long-form.js';

const CONNECTIONS = Number(process.argv[2] ?? rounds({ short: 1, long: 3 }));
const MIB = 1 << 20;

/** How often the sidecar’s memory is read, ms. */
const WATCH_MS = 2;

/** The most that the sidecar may grow by, however many such connections there are. */
const GROWTH_BYTES = 100 * MIB;

/** With so many connections the goals are asserted, on an idle machine: so many times as long, and so many ms. */
const MANY = { connections: 100, slower: 2, turnMs: 20 };

/** The most time of an answer beside callers that do not read, as a multiple of its time beside readers. */
const SLOWER = 5;
/** And in addition, ms: what a process on a shared machine may wait to be scheduled. */
const TURN_MS = 200;
/**
 * With fewer answers the slowest of a hundred is the slowest of all, which measures the machine: then the median is
 * compared.
 */
const ENOUGH_FOR_P99 = 500;

function quantile(times: readonly number[], part: number): number {
  return [...times].sort((a, b) => a - b)[Math.floor(part * times.length)] ?? Infinity;
}

t.test('answers that are not read use bounded memory, and others are served', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, config: await chatOnly(2) });
  const { port } = sidecar;
  const kinds = answersNotToRead(sidecar);
  t.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
  const before = residentBytes(sidecar.pid);
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, residentBytes(sidecar.pid))), WATCH_MS);
  const grewTooMuch = (): boolean => most - before >= GROWTH_BYTES;
  const unread = await othersBeside(port, async () => {
    for (const [what, kind] of Object.entries(kinds)) {
      const ended = await Promise.all(Array.from({ length: CONNECTIONS }, () => flood(kind, grewTooMuch)));
      t.ok(
        ended.every((each) => each),
        `${what}: each connection was closed`,
      );
    }
  });
  clearInterval(watch);
  const grown = Math.round((most - before) / MIB);
  t.notOk(grewTooMuch(), `grew by ${grown} MiB`);
  const beside = await othersBeside(port, async () => {
    await Promise.all(Array.from({ length: CONNECTIONS }, () => readAnswers(port)));
  });
  const part = Math.min(unread.length, beside.length) < ENOUGH_FOR_P99 ? 0.5 : 0.99;
  const [besideMs, unreadMs] = [quantile(beside, part), quantile(unread, part)];
  const summary = `others' answers, quantile ${part}: ${unreadMs.toFixed(1)} ms, beside readers ${besideMs.toFixed(1)} ms`;
  const { slower, turnMs } = CONNECTIONS < MANY.connections ? { slower: SLOWER, turnMs: TURN_MS } : MANY;
  t.ok(unreadMs <= slower * besideMs + turnMs, summary);
  t.comment(`grew by ${grown} MiB; ${summary}, of ${unread.length} and ${beside.length}`);
});
