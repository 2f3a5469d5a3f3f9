/** Who calls: what a request shows, the caller that is found by it, and the port of those that find it. */
import type { KeyRoute } from '../contracts/requests.js';
import type { ErrorCode } from '../domain/errors.js';
import type { ServiceTier } from '../domain/service-class.js';
import type { LimitedCaller } from './limits.js';

/** The parts of a request that identify the caller. Values are secrets: never logged. */
export interface Credentials {
  /** A header by its lower-case name, as sent. */
  header(name: string): string | undefined;
  /** The address of the connection, as text; empty on a Unix socket; a proxy's address behind one. */
  readonly address: string;
}

/** The model ids that a key may call: a set, or all hosted models. */
export type ModelSet = 'all' | ReadonlySet<string>;

/** A checked caller, with the quotas of its key. */
export interface Caller extends LimitedCaller {
  readonly kind: 'caller';
  readonly environment: string;
  readonly models: ModelSet;
  /** Routes that the key may call; absent: all. */
  readonly routes?: ReadonlySet<KeyRoute>;
  /** The cohort whose restricted models it may call; absent: only unrestricted ones. */
  readonly cohort?: string;
  /** It sees the usage of all keys of its account, and the balance; absent: its own usage alone. */
  readonly usage?: 'account';
  /** The tiers that it may ask for; absent: none. */
  readonly tiers?: ReadonlySet<ServiceTier>;
  /** Weight of its class in the seat queue: 16, 4 or 1. */
  readonly weight: number;
  /** Named by a gateway, which has checked limits, cohorts and credit; its deadline header is used. */
  readonly vouched?: true;
}

export interface KnownNames {
  readonly account?: string | undefined;
  readonly keyId?: string | undefined;
}

export interface Denied {
  readonly kind: 'denied';
  readonly code: ErrorCode;
  readonly retryAfterMs?: number;
  /** The names of what was rejected, as far as they are known: for the log alone. */
  readonly known?: KnownNames;
}

/** Headers for lookups on behalf of a request, to propagate its trace. */
export type TraceHeaders = () => Readonly<Record<string, string>>;

/** Authenticates callers: by a keys file, an HTTP authorizer or a trusted gateway. Never throws or rejects. */
export interface Identity {
  resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied>;
  /**
   * What this key of `account` is answered with now, for work that goes on after its request. Absent: this source does not list keys, as
   * an authorizer does not. Returns undefined if the key is not listed any more, but its account has another one in force.
   */
  ofKey?(keyId: string, account: string): Caller | Denied | undefined;
}

/** Whether `models` includes `id`. */
export function mayCall(models: ModelSet, id: string): boolean {
  return models === 'all' || models.has(id);
}

/** Whether this caller may use a model restricted to `cohort`, or unrestricted. */
export function inCohort(caller: Caller, cohort: string | undefined): boolean {
  return cohort === undefined || caller.vouched === true || caller.cohort === cohort;
}

/** Whether the caller's key is entitled to `route`. */
export function mayUse(caller: Caller, route: KeyRoute): boolean {
  return caller.routes === undefined || caller.routes.has(route);
}

/** `Bearer`, one or more spaces, and visible ASCII. */
const BEARER = /^bearer +([\x21-\x7e]+)$/i;

/** Keys have some 50 characters; the bound keeps hashing cheap. */
const MAX_KEY = 256;

/** The key in the Authorization header; undefined if there is none, or it is malformed or longer than `maxCharacters`. */
export function bearerOf(credentials: Credentials, maxCharacters = MAX_KEY): string | undefined {
  const key = BEARER.exec(credentials.header('authorization') ?? '')?.[1];
  return key !== undefined && key.length <= maxCharacters ? key : undefined;
}

/**
 * An account or a key's id that comes from another machine. It and {@link MODEL_ID} are ASCII without spaces, so that names
 * that look alike are equal: no homoglyphs, no composed and decomposed letters, and nothing that header parsing could trim. No
 * comma, with which a proxy joins two headers.
 */
export const NAME = '^[A-Za-z0-9][A-Za-z0-9._:@/+=~|-]{0,255}$';

/** A model's id, as requests name it (docs/contract.md#chat-completion-request). */
export const MODEL_ID = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$';

/** Models that one caller may be entitled to by name. */
export const MAX_MODELS = 256;
