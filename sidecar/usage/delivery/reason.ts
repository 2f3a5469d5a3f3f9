/** Errors that wrap errors that wrap errors: no library does it more often. */
const MAX_DEPTH = 5;

/**
 * Why something failed, in a word that may be logged: the operating system's code or, without one, the name of the error
 * that is furthest in. Never a message, which can quote a header or an address.
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
