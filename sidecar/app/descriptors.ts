/**
 * Divides the process's file descriptors. If accept() fails for lack of a descriptor, uWS retries in a busy loop, and
 * no child can be forked. So connections are bounded below the limit, and the rest is a reserve.
 */
import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.js';
import { serverUrls } from '../config/model-schema.js';
import { MOST_DEVICES } from './replica-plans.js';

/**
 * For the process itself: 24 for Node and the listeners, 8 per prompt host, and the rest for the spool, delivery, an
 * OTLP endpoint and watched files.
 */
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
export function descriptorLimit(limits = limitsText()): number {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
  return soft === undefined ? Infinity : Number(soft);
}

function limitsText(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}
