import { randomInt } from 'node:crypto';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/**
 * Nine letters and digits, which Mistral's templates require of calls in a conversation and all others accept. It has to be unique
 * within one conversation only.
 */
export function newCallId(): string {
  return Array.from({ length: 9 }, () => DIGITS[randomInt(DIGITS.length)] ?? '').join('');
}
