import type { Route } from '../contracts/requests.js';
import type { ErrorCode } from '../domain/errors.js';
import type { KeyLimits } from './limits.js';

/** What of a request says who is calling. Values are secrets: never logged. */
export interface Credentials {
  /** A header by its lower-case name, as sent. */
  header(name: string): string | undefined;
  /** The address that the connection comes from, as text; empty on a Unix socket. A proxy's, behind one. */
  readonly address: string;
}

/** Which model ids a key may call: a list, or everything that is hosted. */
export type ModelSet = 'all' | ReadonlySet<string>;

/** A checked caller. */
export interface Caller {
  readonly kind: 'caller';
  readonly account: string;
  readonly keyId: string;
  readonly environment: string;
  readonly models: ModelSet;
  /** Routes that the key may call; absent: all. */
  readonly routes?: ReadonlySet<Route>;
  /** The cohort whose gated models it may call; absent: those that are open to all. */
  readonly cohort?: string;
  /** Its own limits over the configured ones. */
  readonly limits?: KeyLimits;
  /** Prompt and completion tokens from one midnight UTC to the next; absent: no quota. */
  readonly tokensPerDay?: number;
  /** Share of the account's class in the seat queue: 16, 4 or 1. */
  readonly weight: number;
  /** A gateway vouches for it, and has seen to limits, cohorts and credit; the deadline that it names counts. */
  readonly vouched?: true;
}

export interface Denied {
  readonly kind: 'denied';
  readonly code: ErrorCode;
  readonly retryAfterMs?: number;
}

/** Headers by which whoever is asked on behalf of a request can go on with its trace. */
export type TraceHeaders = () => Readonly<Record<string, string>>;

/** Who is calling. Local files here, an HTTP authorizer or a trusted gateway elsewhere. Never throws or rejects. */
export interface Identity {
  resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied>;
}

/** Whether `models` names `id`. */
export function mayCall(models: ModelSet, id: string): boolean {
  return models === 'all' || models.has(id);
}

/** Whether a model that is gated for `cohort`, or open to all, is open to this caller. */
export function inCohort(caller: Caller, cohort: string | undefined): boolean {
  return cohort === undefined || caller.vouched === true || caller.cohort === cohort;
}

/** Whether the caller's key is entitled to `route`. */
export function mayUse(caller: Caller, route: Route): boolean {
  return caller.routes === undefined || caller.routes.has(route);
}
