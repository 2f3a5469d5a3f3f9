import t from 'tap';
import { Demand, roomFor } from '../../../sidecar/admission/demand.js';

const WINDOW_MS = 10_000;

t.test('load is arrivals per grant, and the time between grants is their mean', async (t) => {
  const demand = new Demand();
  t.equal(demand.load(0), 1, 'nothing known');
  t.equal(demand.everyMs, Infinity);
  for (let at = 0; at < 100_000; at += 100) {
    demand.arrived(at, WINDOW_MS);
    if (at % 400 === 0) demand.seated(at, WINDOW_MS);
  }
  t.ok(Math.abs(demand.load(0) - 4) < 0.2, `${demand.load(0)}`);
  t.ok(Math.abs(demand.everyMs - 400) < 20, `${demand.everyMs}`);
});

t.test('requests of callers that wait for their seat do not count as load', async (t) => {
  const demand = new Demand();
  for (let i = 0; i < 10; i += 1) demand.arrived(0, WINDOW_MS);
  demand.seated(0, WINDOW_MS);
  t.equal(demand.load(9), 1);
  t.equal(demand.load(20), 0.5, 'a request that waits longer than the window counts at most once');
});

t.test('old arrivals do not count', async (t) => {
  const demand = new Demand();
  for (let i = 0; i < 100; i += 1) demand.arrived(0, WINDOW_MS);
  demand.seated(10 * WINDOW_MS, WINDOW_MS);
  t.ok(demand.load(0) < 0.6, `${demand.load(0)}`);
});

/** How often an M/M/1 queue with room for `most` is empty. */
function empty(load: number, most: number): number {
  return (load - 1) / (load ** (most + 1) - 1);
}

t.test('room: the least that is empty for at most the given share of time', async (t) => {
  for (const load of [1.1, 1.25, 2, 4, 10]) {
    for (const part of [0.01, 0.0005]) {
      const room = roomFor(load, part);
      t.ok(empty(load, room) <= part * (1 + 1e-9), `${load}, ${part}: ${room} is enough`);
      t.ok(room === 1 || empty(load, room - 1) > part, `${load}, ${part}: ${room - 1} is not`);
    }
  }
  t.equal(roomFor(0.5), roomFor(1), 'an account below its share has the most room');
});
