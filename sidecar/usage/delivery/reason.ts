/** Bound of the chain of wrapped errors. */
const MAX_DEPTH = 5;

/**
 * The cause of a failure in a word that may be logged: the operating system's code or else the name of the innermost
 * error. Never a message, which may quote a header or an address.
 */
export function reasonOf(error: unknown): string {
  let name = 'unknown';
  let thrown = error;
  for (let depth = 0; depth < MAX_DEPTH && thrown instanceof Error; depth += 1) {
    const { code, cause } = thrown as { readonly code?: unknown; readonly cause?: unknown };
    if (typeof code === 'string') return code;
    name = thrown.name;
    thrown = cause;
  }
  return name;
}
