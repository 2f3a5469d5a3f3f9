/**
 * Limits failed keys by address. Behind a proxy or a gateway all callers have one address, so an address is never a
 * reason to reject a valid key: the key is looked up first, and past the limit only the answer to failing keys changes.
 * It is then 429 `user_rate_limited` with a Retry-After in place of the 401, which no longer reveals whether the key
 * was unknown, expired or revoked.
 */
import { isIPv6 } from 'node:net';
import type { Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import type { Caller, Credentials, Denied, Identity, TraceHeaders } from './identity.js';
import type { ErrorCode } from '../domain/errors.js';

/** Codes that count as a failure. A key of a frozen account, or of none, is a valid key and not a guess. */
const FAILURES: ReadonlySet<ErrorCode> = new Set(['invalid_api_key', 'expired_api_key', 'revoked_api_key']);

const MINUTE_MS = 60_000;

/** Addresses that are remembered, some 2 MB; past that the oldest entry is dropped. */
const MAX_ADDRESSES = 16_384;

/** Limits the 401s of an identity source by address: `perMinute` in a burst, then evenly spaced. */
export class FailedKeyLimit implements Identity {
  readonly #identity: Identity;
  readonly #failures: FailureLimit;

  /** `perMinute`: 0: no limit. */
  constructor(clock: Clock, identity: Identity, perMinute: number) {
    this.#identity = identity;
    this.#failures = new FailureLimit(clock, perMinute);
  }

  /** Addresses remembered now. */
  get size(): number {
    return this.#failures.size;
  }

  async resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied> {
    const answer = await this.#identity.resolve(credentials, trace);
    if (answer.kind === 'caller' || !FAILURES.has(answer.code)) return answer;
    const waitMs = this.#failures.failed(credentials.address);
    if (waitMs === 0) return answer;
    const { known } = answer;
    return { kind: 'denied', code: 'user_rate_limited', retryAfterMs: Math.ceil(waitMs), ...(known && { known }) };
  }

  ofKey(keyId: string, account: string): Caller | Denied | undefined {
    return this.#identity.ofKey?.(keyId, account);
  }
}

/** Counts failures by address. */
export class FailureLimit {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  /** How far ahead of the clock an address may run. */
  readonly #burstMs: number;
  /** By address, the clock reading at which its whole burst is available again. The oldest entry first. */
  readonly #freeAt = new Map<string, number>();

  /** `perMinute`: 0: no limit. */
  constructor(clock: Clock, perMinute: number) {
    this.#clock = clock;
    this.#intervalMs = perMinute === 0 ? 0 : MINUTE_MS / perMinute;
    this.#burstMs = MINUTE_MS - this.#intervalMs;
  }

  /** Addresses remembered now. */
  get size(): number {
    return this.#freeAt.size;
  }

  /** Counts a failure of an address. Returns how long it is too early, ms; then it was not counted. */
  failed(address: string): number {
    if (this.#intervalMs === 0) return 0;
    const network = networkOf(address);
    const now = this.#clock.now();
    const from = Math.max(now, this.#freeAt.get(network) ?? now);
    const waitMs = from - now - this.#burstMs;
    if (waitMs > 0) return waitMs;
    setNewest(this.#freeAt, network, from + this.#intervalMs, MAX_ADDRESSES);
    return 0;
  }
}

/** Hextets of an IPv6 address, and those of the network: one caller usually has a whole /64. */
const HEXTETS = 8;
const NETWORK_HEXTETS = 4;

/** The unit of counting: an IPv4 address, or the /64 of an IPv6 address. Other texts are used unchanged. */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const left = hextets(head);
  const right = hextets(tail ?? '');
  const gap = tail === undefined ? 0 : HEXTETS - left.length - right.length;
  const all = [...left, ...Array<number>(Math.max(0, gap)).fill(0), ...right];
  const [, , , , , marker, high = 0, low = 0] = all;
  // An IPv4 caller of a dual-stack listener: otherwise all IPv4 callers would share one network.
  if (all.slice(0, 5).every((part) => part === 0) && marker === 0xffff) {
    return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  }
  return `${all
    .slice(0, NETWORK_HEXTETS)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}

/** `1:a` and `ffff:1.2.3.4` as numbers of 16 bits. */
function hextets(text: string): number[] {
  return text === ''
    ? []
    : text.split(':').flatMap((part) => {
        const [a = 0, b = 0, c = 0, d = 0] = part.split('.').map(Number);
        return part.includes('.') ? [a * 256 + b, c * 256 + d] : [parseInt(part, 16)];
      });
}
