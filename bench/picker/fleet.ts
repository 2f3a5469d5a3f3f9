/** Three sidecars, each with a stub of an engine, and the picker in front of them. */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { StubModel } from '../../test/support/in-process.js';
import { messageOf } from '../support/children.js';
import type { Orders, Policy } from './picker.js';
import { readingOf } from './scorers.js';

const PICKER = fileURLToPath(new URL('./picker.js', import.meta.url));
const SIDECAR = fileURLToPath(new URL('../support/timing-sidecar.js', import.meta.url));
export const SIDECARS = 3;
export const MODEL = 'paced';

/** Polls of a sidecar that should be idle, and the time between them, ms: longer than any reply takes. */
const LOOKS = 600;
const LOOK_MS = 50;

export interface Fleet {
  readonly ports: readonly number[];
  /** Resolves when none has work; rejects if one still has after half a minute. */
  idle(): Promise<void>;
  close(): void;
}

/** Waits are never too long and queues never full: the bench compares waits, not refusals. */
export async function startFleet(seats: number): Promise<Fleet> {
  const config = { queue: { maxWaitMs: 120_000, waitingPerSeat: 1000 }, fleet: { pickerMetrics: true } };
  const models: readonly StubModel[] = [{ id: MODEL, kind: 'chat', seats }];
  const children = Array.from({ length: SIDECARS }, () =>
    fork(SIDECAR, [JSON.stringify(config), JSON.stringify(models)]),
  );
  const ports = await Promise.all(children.map((child) => messageOf<number>(child)));
  return {
    ports,
    idle: async () => {
      for (const port of ports) await settled(port);
    },
    close: () => {
      for (const child of children) child.disconnect();
    },
  };
}

/** No request waits at a sidecar, and no seat is in use. */
async function settled(port: number): Promise<void> {
  const names = { waiting: 'ra_sidecar_endpoint_waiting_requests', kvUsage: 'ra_sidecar_endpoint_seat_usage_ratio' };
  for (let looks = 0; looks < LOOKS; looks++) {
    const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const { waiting, kvUsage } = readingOf(page, names);
    if (waiting === 0 && kvUsage === 0) return;
    await new Promise((later) => setTimeout(later, LOOK_MS));
  }
  throw new Error(`the sidecar at ${port} is not idle`);
}

export interface Front {
  readonly port: number;
  /** Requests that each sidecar got so far. */
  picked(): Promise<readonly number[]>;
  close(): void;
}

/** A new picker for each load, so that none begins with earlier readings. */
export async function startPicker({ ports }: Fleet, policy: Policy, seed: number): Promise<Front> {
  const child = fork(PICKER);
  const orders: Orders = { ports, policy, seed };
  child.send(orders);
  const port = await messageOf<number>(child);
  return {
    port,
    picked: async () => {
      child.send('picked');
      return messageOf<number[]>(child);
    },
    close: () => child.disconnect(),
  };
}
