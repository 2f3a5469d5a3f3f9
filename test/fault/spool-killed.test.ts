/**
 * The sidecar is killed at random times under load, repeatedly with one data folder. `node
 * dist/test/fault/spool-killed.test.js 200` kills it 200 times.
 */
import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { ENDLESS, OpenStream } from '../support/open-stream.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';
import { rounds } from '../support/long-form.js';

const ROUNDS = Number(process.argv[2] ?? rounds({ short: 2, long: 20 }));
const CALLERS = 6;
/** The most pieces of replies until the sidecar is killed (the last time perhaps later): some tens of requests. */
const MAX_PIECES = 150;

/** Complete replies: completion tokens by the request id that the caller sent. */
const delivered = new Map<string, number>();
let cutOff = 0;

/** Sends one request after another until the sidecar has ended. `piece` is emitted for whatever arrives. */
async function call(sidecar: Sidecar, pieces: EventEmitter): Promise<void> {
  for (;;) {
    const id = randomUUID();
    const stream = Math.random() < 0.5;
    const max_tokens = 1 + Math.floor(Math.random() * 40);
    let text = '';
    try {
      const response = await sidecar.post(
        '/chat/completions',
        { ...ENDLESS, model: CHAT, max_tokens, stream, ...(stream && { stream_options: { include_usage: true } }) },
        { headers: { 'x-request-id': id } },
      );
      const decoder = new TextDecoder();
      for await (const bytes of response.body ?? []) {
        text += decoder.decode(bytes as Uint8Array, { stream: true });
        pieces.emit('piece');
      }
    } catch {
      // The reply’s last bytes may all have arrived before the connection broke.
      if (stream ? !text.includes('data: [DONE]') : !isWhole(text)) cutOff++;
      else delivered.set(id, tokensOf(text));
      return;
    }
    if (stream ? text.includes('data: [DONE]') : isWhole(text)) delivered.set(id, tokensOf(text));
    else throw new Error(`an answer that is neither complete nor cut off: ${text.slice(0, 200)}`);
  }
}

function isWhole(text: string): boolean {
  try {
    return 'choices' in (JSON.parse(text) as object);
  } catch {
    return false;
  }
}

function tokensOf(text: string): number {
  return Number(/"completion_tokens":(\d+)/.exec(text)?.[1]);
}

/** What is true of every spool that a start has recovered. */
async function check(t: Test, dir: string, round: number): Promise<UsageRecord[]> {
  const { records, damage } = await readAll(join(dir, 'usage'));
  t.strictSame(damage, [], `round ${round}: nothing is damaged`);
  const closes = new Map<string, UsageRecord[]>();
  const byCaller = new Map<string, UsageRecord[]>();
  for (const record of records.filter(({ kind }) => kind === 'close')) {
    closes.set(record.id, [...(closes.get(record.id) ?? []), record]);
    byCaller.set(record.requestId, [...(byCaller.get(record.requestId) ?? []), record]);
  }
  for (const [id, found] of closes) if (found.length > 1) t.fail(`round ${round}: ${id} has ${found.length} closes`);
  for (const [requestId, completionTokens] of delivered) {
    const found = byCaller.get(requestId) ?? [];
    const { outcome, estimated, ...rest } = found[0] ?? { completionTokens: undefined };
    if (found.length !== 1 || outcome !== 'done' || estimated || rest.completionTokens !== completionTokens) {
      t.fail(`round ${round}: ${requestId}, ${completionTokens} tokens, has ${JSON.stringify(found)}`);
    }
  }
  return records;
}

t.test(`killed ${ROUNDS} times under load: each complete reply is billed once`, async (t) => {
  const dir = t.testdir();
  const config = { ...(await chatOnly(4, 8192)), dataDir: dir, usage: { segmentBytes: 64 * 1024 } };
  for (let round = 0; round < ROUNDS; round++) {
    const sidecar = await Sidecar.start(t, { stub: true, config });
    await check(t, dir, round);
    // Its first token comes after its opening record. A reply that is whole later has a later record that is durable, so that
    // this one is too when the sidecar is killed, and has no close.
    await OpenStream.begin(sidecar);
    const pieces = new EventEmitter();
    // Kills after a few pieces leave nothing complete, so the last one waits until there is something to check.
    const least = round < ROUNDS - 1 ? 0 : delivered.size + ROUNDS + 1;
    let left = 1 + Math.floor(Math.random() * MAX_PIECES);
    pieces.on('piece', () => {
      left--;
      if (left <= 0 && delivered.size >= least) sidecar.child.kill('SIGKILL');
    });
    await Promise.all(Array.from({ length: CALLERS }, () => call(sidecar, pieces)));
    await sidecar.exited();
  }
  const last = await Sidecar.start(t, { stub: true, config });
  const records = await check(t, dir, ROUNDS);
  last.child.kill('SIGTERM');
  t.equal((await last.exited()).code, 0);
  const estimated = records.filter((record) => record.estimated).length;
  t.ok(delivered.size > ROUNDS, `${delivered.size} replies were complete`);
  t.ok(cutOff > 0 && estimated > 0, `${cutOff} were cut off, ${estimated} closed at an estimate`);
  const closed = new Set(records.filter(({ kind }) => kind === 'close').map(({ id }) => id));
  t.strictSame(
    records.filter(({ id }) => !closed.has(id)),
    [],
    'every request has a close',
  );
});
