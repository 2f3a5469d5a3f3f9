/**
 * How the process's descriptors are shared out. uWS accepts for ever and turns without rest once accept() fails for want of
 * a descriptor, and a child cannot be forked either: so connections are bounded below the limit, and the rest is a reserve.
 */
import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.js';

/**
 * For the process itself: 24 of Node and the listeners, 8 a prompt host, and the spool, the delivery, an OTLP endpoint and
 * the files that are followed, each with some at once.
 */
const OWN = 96;

/** An engine has two pipes; as many again while one is replaced, and as many for what libuv needs during a fork. */
const PER_MODEL = 8;

/** Connections of operators: scrapers, probes, commands. The console's viewers are counted beside them. */
const OPERATORS = 64;

/** Without a setting at most: an idle connection takes some KiB of the kernel's memory and of ours. */
const MOST_BY_DEFAULT = 65_536;

/** Fewer connections are no service. */
const LEAST = 16;

export interface ConnectionBounds {
  readonly public: number;
  readonly operators: number;
}

export type Shared =
  | { readonly kind: 'bounds'; readonly bounds: ConnectionBounds }
  /** `line` is for the operator. */
  | { readonly kind: 'short'; readonly line: string };

type Needs = Pick<Config, 'listen' | 'models' | 'console' | 'access' | 'authorizer'>;

/** How many connections each listener may have open. `limit`: of descriptors; Infinity where there is none. */
export function connectionBounds({ listen, models, console, access, authorizer }: Needs, limit: number): Shared {
  const operators = OPERATORS + console.viewers;
  const reserve =
    OWN + models.length * PER_MODEL + (access.mode === 'authorizer' ? authorizer.concurrency : 0) + operators;
  const left = limit - reserve;
  const { maxConnections = Math.min(left, MOST_BY_DEFAULT) } = listen;
  if (maxConnections > left || maxConnections < LEAST) {
    const wanted = Math.max(listen.maxConnections ?? 0, LEAST);
    const line = `open files: at most ${limit}, but ${reserve} are kept in reserve and listen.maxConnections needs ${wanted} more: raise the limit (LimitNOFILE, ulimit -n)`;
    return { kind: 'short', line };
  }
  return { kind: 'bounds', bounds: { public: maxConnections, operators } };
}

/** The process's limit of descriptors; Infinity where there is none, or where it cannot be read. */
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
