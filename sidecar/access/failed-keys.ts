/**
 * Failed keys, limited by address. A proxy or a gateway in front makes every caller look like one address, so an address
 * is never a reason to turn a good key away: the key is looked up first, and all that changes past the limit is the
 * answer to keys that fail. It is then 429 `user_rate_limited` with a Retry-After in place of the 401, since it says what
 * to do (wait), and no more whether the key was unknown, expired or revoked.
 */
import { isIPv6 } from 'node:net';
import type { Clock } from '../lib/clock.js';
import type { Caller, Credentials, Denied, Identity, TraceHeaders } from './identity.js';
import type { ErrorCode } from '../domain/errors.js';

/** What fails a key itself. One that belongs to a frozen account, or to none, is no guess: whoever sends it has it. */
const FAILURES: ReadonlySet<ErrorCode> = new Set(['invalid_api_key', 'expired_api_key', 'revoked_api_key']);

const MINUTE_MS = 60_000;

/** Addresses that are remembered, some 2 MB; past that the one whose count is the oldest starts anew. */
const MAX_ADDRESSES = 16_384;

/** An identity source whose 401s are limited by address: `perMinute` at once, then evenly. */
export class FailedKeyLimit implements Identity {
  readonly #clock: Clock;
  readonly #behind: Identity;
  readonly #intervalMs: number;
  /** How far ahead of the clock an address may run. */
  readonly #burstMs: number;
  /** By address, the clock reading at which it has all its failures again. The oldest entry first. */
  readonly #freeAt = new Map<string, number>();

  /** `perMinute`: 0: no limit. */
  constructor(clock: Clock, behind: Identity, perMinute: number) {
    this.#clock = clock;
    this.#behind = behind;
    this.#intervalMs = perMinute === 0 ? 0 : MINUTE_MS / perMinute;
    this.#burstMs = MINUTE_MS - this.#intervalMs;
  }

  /** Addresses remembered now. */
  get size(): number {
    return this.#freeAt.size;
  }

  async resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied> {
    const answer = await this.#behind.resolve(credentials, trace);
    if (this.#intervalMs === 0 || answer.kind === 'caller' || !FAILURES.has(answer.code)) return answer;
    const waitMs = this.#failed(networkOf(credentials.address));
    return waitMs === 0 ? answer : { kind: 'denied', code: 'user_rate_limited', retryAfterMs: Math.ceil(waitMs) };
  }

  /** Counts a failure. Returns how long it comes too early, ms; then it was not counted. */
  #failed(network: string): number {
    const now = this.#clock.now();
    const from = Math.max(now, this.#freeAt.get(network) ?? now);
    const waitMs = from - now - this.#burstMs;
    if (waitMs > 0) return waitMs;
    this.#freeAt.delete(network);
    this.#freeAt.set(network, from + this.#intervalMs);
    if (this.#freeAt.size > MAX_ADDRESSES) this.#forgetOldest();
    return 0;
  }

  #forgetOldest(): void {
    for (const network of this.#freeAt.keys()) {
      this.#freeAt.delete(network);
      return;
    }
  }
}

/** Hextets of an IPv6 address, and those that name a network: a caller has all of a /64 to choose from. */
const HEXTETS = 8;
const NETWORK_HEXTETS = 4;

/** What is counted as one caller: an IPv4 address, or the /64 of an IPv6 address in full. Other texts are themselves. */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const left = hextets(head);
  const right = hextets(tail ?? '');
  const gap = tail === undefined ? 0 : HEXTETS - left.length - right.length;
  const all = [...left, ...Array<number>(Math.max(0, gap)).fill(0), ...right];
  const [, , , , , marker, high = 0, low = 0] = all;
  // An IPv4 caller of a listener for both: all of them would share one network.
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
