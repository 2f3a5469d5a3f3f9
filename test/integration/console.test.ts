/** The console’s numbers equal those of /metrics, while a real sidecar with real engines is under load and after it. */
import t from 'tap';
import type { Snapshot } from '../../sidecar/console/views.js';
import { ConsoleHarness } from '../e2e/console-harness.js';
import { atRest, FeedReader, outside, sameNumbers } from '../support/console-feed.js';
import { CHAT, DECIDE } from '../support/sidecar.js';
import { ENGINE, killChild, SHORT_LANE, ProcessGate } from '../support/process-gate.js';

/** Snapshots that are compared under load at least, a quarter of a second each. */
const PICTURES = 6;
/** The time limit for a busy machine. */
const MOST_PICTURES = 200;

function byName({ models }: Snapshot): (Snapshot['models'][number] | undefined)[] {
  return [CHAT, DECIDE].map((id) => models.find(({ model }) => model === id));
}

t.test('under load and after it the numbers are those of /metrics and /admission', async (t) => {
  const queue = { waitingPerSeat: 0, maxWaitMs: 20_000 };
  const gate = new ProcessGate(t);
  const { environment } = gate;
  const harness = await ConsoleHarness.start(t, { console: { intervalMs: 250 }, queue }, environment);
  const { sidecar } = harness;
  const read = async (path: string): Promise<string> =>
    (await fetch(`http://127.0.0.1:${sidecar.operatorsPort}${path}`)).text();
  const feed = await FeedReader.open(sidecar.operatorsPort);
  t.teardown(() => feed.close());
  harness.begin();
  await sidecar.reaches('ra_sidecar_seats_busy', 8, { model: CHAT });

  let moved = 0;
  const states = new Set<string>();
  let enough = false;
  for (let i = 0; i < PICTURES || (!enough && i < MOST_PICTURES); i += 1) {
    const before = await read('/metrics');
    const since = Date.now();
    const snapshot = await feed.until(({ at }) => at > since);
    const seen = outside(snapshot, before, await read('/metrics'));
    t.strictSame(seen.wrong, [], `snapshot ${i + 1}: every count is between those before and after it`);
    moved += seen.moved;
    for (const { model, holders, queue: line } of snapshot.models) {
      const held = holders.flatMap(({ seats }) => seats);
      t.equal(held.length, line.busy, `${model}: each seat in use has its request, at each moment`);
      t.equal(new Set(held).size, held.length, 'and one alone');
      t.ok(held.every((seat) => seat < line.seats));
      const running = line.accounts.reduce((sum, account) => sum + account.running, 0);
      t.equal(running + line.others.running, line.busy, 'by account too');
      for (const { state } of holders) states.add(state);
    }
    const [chat, decide] = byName(snapshot);
    enough = (chat?.ended[''] ?? 0) > 10 && (decide?.ended[''] ?? 0) > 3 && (chat?.interToken.counts.at(-1) ?? 0) > 500;
  }
  t.ok(moved > 10 * PICTURES, `${moved} counts changed meanwhile`);
  t.ok(states.has('prefilling') && states.has('decoding'), [...states].join());

  // An engine that ends loses what it had begun; then the callers disconnect, in whatever phase they are.
  gate.close(ENGINE);
  process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
  const engine = await gate.stopped();
  const engineAway = await feed.until((snapshot) => byName(snapshot)[0]?.engine.state !== 'ready');
  t.match(engineAway.readiness, { status: 'starting', reasons: [`cold: ${CHAT}`] });
  engine.goOn();
  await sidecar.reaches('ra_sidecar_engine_restarts_total', 1, { model: CHAT });
  await sidecar.reaches('ra_sidecar_engine_state', 1, { model: CHAT, state: 'ready' });
  await sidecar.reaches('ra_sidecar_seats_busy', 8, { model: CHAT });
  gate.close(SHORT_LANE);
  killChild(sidecar.pid, SHORT_LANE);
  const host = await gate.stopped();
  const hostAway = await feed.until(({ promptHosts }) => promptHosts.some(({ up }) => !up));
  t.match(hostAway.promptHosts, [
    { lane: 'short', up: false },
    { lane: 'long', up: true },
  ]);
  host.goOn();
  await feed.until(({ promptHosts }) => promptHosts.every(({ up }) => up));
  await harness.end();
  for (const still of ['seats_busy', 'waiting_requests', 'streams_running', 'spool_unsynced_records']) {
    await sidecar.reaches(`ra_sidecar_${still}`, 0);
  }
  // A disconnect is counted once the connection is seen to be closed.
  await sidecar.reaches('http_server_active_requests', 0, { http_request_method: 'POST' });
  // An engine reports its sequences’ tokens with its next heartbeat, half a second later.
  await feed.until((snapshot) => (byName(snapshot)[0]?.engine.keptTokens ?? 0) > 0);
  const { snapshot, page } = await atRest(feed, () => read('/metrics'));
  sameNumbers(t, snapshot, page, JSON.parse(await read('/admission')));

  const [chat, decide] = byName(snapshot);
  const all = (counts: Readonly<Record<string, number>> = {}): number =>
    Object.values(counts).reduce((sum, value) => sum + value, 0);
  t.equal(chat?.engine.restarts, 1);
  t.equal(snapshot.promptHostRestarts, 1);
  t.match(snapshot.promptHosts, [
    { lane: 'short', up: true, restarts: 1 },
    { lane: 'long', up: true, restarts: 0 },
  ]);
  t.ok((snapshot.errors['request_cancelled'] ?? 0) > 0, 'a disconnect is an error too');
  t.ok((chat?.refusals['full'] ?? 0) > 0, 'some were refused');
  t.ok(all(chat?.cancels) > 0, 'some left');
  t.ok((chat?.ended[''] ?? 0) > 10 && (decide?.ended[''] ?? 0) > 3, 'many were answered');
  t.ok((chat?.ended['bad_gateway'] ?? 0) > 0, 'some lost their engine');
  t.ok((chat?.interToken.counts.at(-1) ?? 0) > 500);
  t.ok((chat?.tokens.input ?? 0) > 0 && (chat?.tokens.output ?? 0) > 500);
});
