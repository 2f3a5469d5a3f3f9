/** Three sidecars with engines of their own, and what stands in front of them. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeKey } from '../../test/support/keys.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import type { Orders, Policy } from './picker.js';

const PICKER = fileURLToPath(new URL('./picker.js', import.meta.url));
export const SIDECARS = 3;

export interface Sizes {
  readonly file: string;
  readonly seats: number;
  readonly context: number;
}

export interface Fleet {
  readonly ports: readonly number[];
  /** Good at each of them. */
  readonly key: string;
  /** Resolves when none has work. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Waits are never too long and queues never full: what is compared is who waits, not who is refused. */
export async function startFleet({ file, seats, context }: Sizes): Promise<Fleet> {
  const folder = await mkdtemp(join(tmpdir(), 'ra-picker-'));
  const { key, stored } = makeKey({ id: 'bench', account: 'bench' });
  const keyFile = join(folder, 'keys.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: [stored] }));
  const teardowns: (() => Promise<void>)[] = [];
  const model = { id: CHAT, kind: 'chat', file, seats, contextPerSeat: context, threads: 1, gpu: false };
  const sidecars: Sidecar[] = [];
  const close = async (): Promise<void> => {
    for (const teardown of teardowns.reverse()) await teardown();
    await rm(folder, { recursive: true, force: true });
  };
  const config = {
    models: [{ ...model, prefixReuse: 'off' }],
    development: { validateAnswers: false },
    keys: { file: keyFile },
    queue: { maxWaitMs: 120_000, waitingPerSeat: 1000 },
    fleet: { pickerMetrics: true },
  };
  // One after the other: each looks how much memory is free before its engine loads.
  for (let i = 0; i < SIDECARS; i++) {
    const starting = Sidecar.start({ teardown: (fn) => void teardowns.push(fn) }, { config });
    sidecars.push(
      await starting.catch(async (error: unknown) => {
        await close();
        throw error;
      }),
    );
  }
  return {
    key,
    ports: sidecars.map(({ port }) => port),
    idle: async () => {
      for (const sidecar of sidecars) {
        await sidecar.reaches('ra_sidecar_endpoint_waiting_requests', 0);
        await sidecar.reaches('ra_sidecar_endpoint_running_requests', 0);
      }
    },
    close,
  };
}

export interface Front {
  readonly port: number;
  /** Requests that each sidecar was given so far. */
  picked(): Promise<readonly number[]>;
  close(): void;
}

/** A picker of its own for each load, so that none begins with what the one before it read. */
export async function startPicker({ ports }: Fleet, policy: Policy, seed: number): Promise<Front> {
  const child = fork(PICKER);
  const orders: Orders = { ports, policy, seed };
  child.send(orders);
  const port = await answer<number>(child);
  return {
    port,
    picked: async () => {
      child.send('picked');
      return answer<number[]>(child);
    },
    close: () => child.disconnect(),
  };
}

async function answer<T>(child: ChildProcess): Promise<T> {
  const [message] = (await once(child, 'message')) as [T];
  return message;
}
