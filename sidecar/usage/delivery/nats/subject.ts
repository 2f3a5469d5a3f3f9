/** The placeholder for the account in a subject's template. */
const ACCOUNT = '{account}';

/** All other characters are escaped. A dot would start another token; `*` and `>` are wildcards. */
const PLAIN = /[^A-Za-z0-9_-]/gu;

/** The subject of an account's events. */
export function subjectOf(template: string, account: string): string {
  // A function, since `$&` in a replacement text would be expanded.
  return template.replace(ACCOUNT, () => accountToken(account));
}

/**
 * An account as one token of a subject: no account name can produce another account's subject, a second token, or a
 * wildcard. Different accounts produce different tokens: `%` becomes `%25`, and an empty account, which should not
 * occur, becomes a lone `%`.
 */
export function accountToken(account: string): string {
  return account === '' ? '%' : account.replace(PLAIN, escaped);
}

function escaped(character: string): string {
  return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
