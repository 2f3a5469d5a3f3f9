/** Stands for the account in a subject's template. */
const ACCOUNT = '{account}';

/** What a byte may be that stands for itself. A dot would begin another token; `*` and `>` are for subscribers. */
const PLAIN = /[^A-Za-z0-9_-]/gu;

/** The subject of an account's events. */
export function subjectOf(template: string, account: string): string {
  // A function, since `$&` in a text would be filled in.
  return template.replace(ACCOUNT, () => accountToken(account));
}

/**
 * An account as one token of a subject: no account can name another's subject, nor a second token, nor a wildcard. Two
 * accounts never make the same one: `%` is written `%25`, and the account without a letter, of which there should be none,
 * is a lone `%`.
 */
export function accountToken(account: string): string {
  return account === '' ? '%' : account.replace(PLAIN, escaped);
}

function escaped(character: string): string {
  return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
