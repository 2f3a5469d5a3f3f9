import { randomInt } from 'node:crypto';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/**
 * Nine letters and digits: what Mistral's templates insist on when a call comes back in a conversation, and fine for all others.
 * It has to be unique within one conversation only.
 */
export function newCallId(): string {
  return Array.from({ length: 9 }, () => DIGITS[randomInt(DIGITS.length)] ?? '').join('');
}
