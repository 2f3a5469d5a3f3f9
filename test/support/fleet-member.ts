import { mkdirSync } from 'node:fs';
import { Sidecar } from './sidecar.js';
import { Relay, type Listening } from './postgres.js';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** A sidecar in a process of its own, with a relay to the store that it shares with others. Its engines are stubs. */
export interface FleetMember {
  readonly dataDir: string;
  readonly relay: Relay;
  sidecar: Sidecar;
  /** Kills it, and starts it with the same data folder and relay. */
  restart(): Promise<void>;
}

/** Makes the data folder and starts one. `store`: settings of the store, with the `url` that the relay leads to. */
export async function fleetMember(
  t: Owner,
  server: Listening,
  dataDir: string,
  { store, ...rest }: { readonly store: { readonly url: string; readonly [name: string]: unknown } },
): Promise<FleetMember> {
  const relay = await new Relay(t, server).listen();
  mkdirSync(dataDir);
  const config = { ...rest, dataDir, store: { ...store, url: relay.through(store.url) } };
  const start = (): Promise<Sidecar> => Sidecar.start(t, { stub: true, config });
  const made: FleetMember = {
    dataDir,
    relay,
    sidecar: await start(),
    restart: async () => {
      made.sidecar.child.kill('SIGKILL');
      await made.sidecar.exited();
      made.sidecar = await start();
    },
  };
  return made;
}

/** The faults of a network, in the order in which {@link disturb} sets them. */
const FAULTS = ['none', 'delay', 'hold', 'refuse', 'delay'] as const;

/** Gives each relay another fault for a round: no answers, late ones, or connections that are cut. */
export function disturb(fleet: readonly FleetMember[], round: number): void {
  for (const [i, { relay }] of fleet.entries()) {
    const fault = FAULTS[(round * 2 + i * 3) % FAULTS.length] ?? 'none';
    if (relay.fault === 'hold') relay.deliver();
    relay.fault = fault;
    if (fault === 'refuse') relay.cut();
  }
}

/** All that was held arrives, and each connection is made anew. */
export function calm(fleet: readonly FleetMember[]): void {
  for (const { relay } of fleet) {
    relay.deliver();
    relay.cut();
  }
}
