/**
 * Divides the process's file descriptors. Without a free one uWS retries accept() in a busy loop and no child can be forked, so connections
 * are bounded below the limit, and the rest is a reserve.
 */
import { closeSync, openSync } from 'node:fs';
import type { Config } from '../config/config.js';
import { serverUrls } from '../config/model-schema.js';
import { every, systemClock, type Clock } from '../lib/clock.js';
import { systemText } from '../lib/missing.js';
import type { Log } from '../telemetry/logger.js';
import type { Closers } from './closers.js';
import { MOST_DEVICES } from './replica-plans.js';

/** For the process itself: 24 for Node and listeners, 8 per prompt host, the rest for spool, delivery, OTLP and watched files. */
const OWN = 96;

/** An engine has two pipes; twice that while it is replaced, and as much again for libuv during a fork. */
const PER_ENGINE = 8;

/** Connections of operators: scrapers, probes, commands. The console's viewers are counted separately. */
const OPERATORS = 64;

/** The default's maximum: an idle connection takes some KiB of memory in the kernel and in the process. */
const MOST_BY_DEFAULT = 65_536;

/** Fewer connections are not useful. */
const LEAST = 16;

export interface ConnectionBounds {
  readonly public: number;
  readonly operators: number;
}

export type Shared =
  | { readonly kind: 'bounds'; readonly bounds: ConnectionBounds }
  /** `line` is the error for the operator. */
  | { readonly kind: 'short'; readonly line: string };

type Needs = Pick<Config, 'listen' | 'models' | 'console' | 'access' | 'authorizer'>;

/** The bounds of connections for each listener. `limit`: of descriptors; Infinity if there is none. */
export function connectionBounds({ listen, models, console, access, authorizer }: Needs, limit: number): Shared {
  const operators = OPERATORS + console.viewers;
  const reserve =
    OWN + enginesOf(models) * PER_ENGINE + (access.mode === 'authorizer' ? authorizer.concurrency : 0) + operators;
  const left = limit - reserve;
  const { maxConnections = Math.min(left, MOST_BY_DEFAULT) } = listen;
  if (maxConnections > left || maxConnections < LEAST) {
    const wanted = Math.max(listen.maxConnections ?? 0, LEAST);
    const line = `open files: at most ${limit}, but ${reserve} are kept in reserve and listen.maxConnections needs ${wanted} more: raise the limit (LimitNOFILE, ulimit -n)`;
    return { kind: 'short', line };
  }
  return { kind: 'bounds', bounds: { public: maxConnections, operators } };
}

/** Engine processes of all models. */
function enginesOf(models: Config['models']): number {
  return models.reduce((sum, { replicas, engine }) => {
    if (typeof replicas === 'object') return sum + replicas.length;
    if (replicas === 'auto') return sum + MOST_DEVICES;
    return sum + Math.max(replicas, serverUrls({ engine }).length);
  }, 0);
}

/** The process's limit of descriptors; Infinity if there is none, or if it cannot be read. */
export function descriptorLimit(limits = systemText('/proc/self/limits')): number {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
  return soft === undefined ? Infinity : Number(soft);
}

/** Between two looks whether a descriptor can be opened, ms. */
const PROBE_MS = 1000;

/** What else opens some, such as a child that is forked, may take the first ones that are given up. */
const KEPT = 8;

/** `open` returns a descriptor, or undefined when there is none left; `close` takes one back. */
export interface Descriptors {
  open(): number | undefined;
  close(descriptor: number): void;
}

/** Descriptors to give up when none is left. uWS would retry accept() in a busy loop; with these it accepts connections and closes them. */
export class DescriptorReserve {
  readonly #changed: (refusing: boolean) => void;
  readonly #descriptors: Descriptors;
  #kept: number[] = [];
  #refusing = false;
  readonly #cancel: () => void;

  /** `changed` is called when connections are refused from now on, and when they are no more. */
  constructor(clock: Clock, changed: (refusing: boolean) => void, descriptors: Descriptors = devices) {
    this.#changed = changed;
    this.#descriptors = descriptors;
    this.#kept = this.#take(KEPT);
    this.#cancel = every(clock, PROBE_MS, () => this.#probe());
  }

  /** New connections are to be closed at once. */
  get refusing(): boolean {
    return this.#refusing;
  }

  /** Idempotent. */
  close(): void {
    this.#cancel();
    this.#giveUp();
  }

  #probe(): void {
    // One more than is kept, so that one is free afterwards.
    const more = this.#take(KEPT + 1 - this.#kept.length);
    this.#kept.push(...more);
    const spare = this.#kept.length > KEPT ? this.#kept.pop() : undefined;
    if (spare !== undefined) this.#descriptors.close(spare);
    if ((spare === undefined) !== this.#refusing) {
      this.#refusing = spare === undefined;
      this.#changed(this.#refusing);
    }
    if (this.#refusing) this.#giveUp();
  }

  /** As many as can be had. */
  #take(count: number): number[] {
    const taken: number[] = [];
    for (let i = 0; i < count; i++) {
      const descriptor = this.#descriptors.open();
      if (descriptor === undefined) break;
      taken.push(descriptor);
    }
    return taken;
  }

  #giveUp(): void {
    for (const descriptor of this.#kept.splice(0)) this.#descriptors.close(descriptor);
  }
}

/** The process's. */
export function keepDescriptors(log: Log, closers: Closers): DescriptorReserve {
  const reserve = new DescriptorReserve(systemClock, (refusing) => {
    if (refusing) log.error('no descriptors left', { reason: 'new connections are refused until some are free' });
    else log.info('descriptors are free again');
  });
  closers.add({ name: 'descriptors in reserve', close: () => reserve.close() });
  return reserve;
}

/** A device, since a disk may hang. */
const devices: Descriptors = {
  open: () => {
    try {
      return openSync('/dev/null', 'r');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EMFILE' || code === 'ENFILE') return undefined;
      throw error;
    }
  },
  close: (descriptor) => closeSync(descriptor),
};
