/** What the seat queue's operations cost with 1,000 tenants: `node dist/bench/admission/operations.bench.js`, part of `make bench`. */
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import type { Door, Pass, Policy, Seated } from './policies/door.js';
import { ours } from './policies/ours.js';
import { simulate } from './simulate.js';
import { arrivals } from './traffic.js';

const TENANTS = 1000;
/** As many as let each tenant have somebody waiting. */
const SEATS = 128;
const LOAD = 2;
const PATIENCE_MS = 10_000;
const UNTIL_MS = 240_000;
/** The queue fills up, and code is compiled. */
const WARM_UP = 20_000;

type Name = 'enter, let in' | 'enter, refused' | 'ready' | 'release';

/** Times every call, µs. */
class Stopwatch {
  readonly times = new Map<Name, number[]>();
  #calls = 0;

  time<T>(call: () => T, name: (result: T) => Name): T {
    const from = process.hrtime.bigint();
    const result = call();
    const us = Number(process.hrtime.bigint() - from) / 1000;
    if (this.#calls++ < WARM_UP) return result;
    const called = name(result);
    const times = this.times.get(called);
    if (times === undefined) this.times.set(called, [us]);
    else times.push(us);
    return result;
  }
}

/** The same policy, with a stopwatch beside it. */
function timed(policy: Policy, watch: Stopwatch): Policy {
  const seated = (outcome: Seated): Seated => ({
    kind: 'seated',
    lease: {
      release: (reason) =>
        watch.time(
          () => outcome.lease.release(reason),
          () => 'release',
        ),
    },
  });
  const passed = (pass: Pass): Pass => ({
    ready: (work) =>
      watch.time(
        () => pass.ready(work),
        () => 'ready',
      ),
    outcome: pass.outcome.then((outcome) => (outcome.kind === 'seated' ? seated(outcome) : outcome)),
  });
  const opened = (door: Door): Door => ({
    enter(entry) {
      const answer = watch.time(
        () => door.enter(entry),
        (result) => ('kind' in result ? 'enter, refused' : 'enter, let in'),
      );
      return 'kind' in answer ? answer : passed(answer);
    },
  });
  return { name: policy.name, open: (setting) => opened(policy.open(setting)) };
}

const tenants = Array.from({ length: TENANTS }, (_, i) => ({
  name: `tenant-${i}`,
  demand: LOAD / TENANTS,
  lengths: { meanMs: 1000 },
}));
const watch = new Stopwatch();
await simulate(timed(ours, watch), arrivals(tenants, SEATS, UNTIL_MS, 1), {
  seats: SEATS,
  patienceMs: PATIENCE_MS,
  untilMs: UNTIL_MS,
});

const rows: Row[] = [];
for (const name of ['enter, let in', 'enter, refused', 'ready', 'release'] as const) {
  const times = watch.times.get(name) ?? [];
  const [half, most, longest] = [quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)];
  rows.push({ operation: name, times: times.length, 'median, µs': half, 'p99, µs': most, 'longest, µs': longest });
}
await keep('admission-operations', {
  title: 'What an operation of the seat queue costs',
  about: [
    `${TENANTS} tenants of equal demand at ${LOAD} times the load, ${SEATS} seats; ${UNTIL_MS / 60_000} simulated minutes, each call timed by the real clock. The room holds 8 requests a seat, so that nearly every tenant has one waiting and the queue is full. Release includes seating the next. The goal of shared/admission.md is a p99 of 50 µs.`,
  ],
  rows,
});
