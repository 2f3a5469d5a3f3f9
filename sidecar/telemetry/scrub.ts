/** Removes what must not be logged from texts and errors. */

/** Longer texts are truncated; no legitimate text of a log line is longer. */
const MAX_CHARACTERS = 256;

const SECRETS = /\bbearer\s+\S+|\bra-[a-z]+-[\w-]{8,}/gi;

/** Truncates a text and masks what looks like a key or a credential. */
export function scrub(text: string): string {
  const clean = text.slice(0, 4 * MAX_CHARACTERS).replace(SECRETS, '[redacted]');
  return clean.length > MAX_CHARACTERS ? `${clean.slice(0, MAX_CHARACTERS)}…` : clean;
}

/** An error without anything that could quote a request. */
export interface Fault {
  readonly name: string;
  readonly code?: string;
  /** The operating system's message, for example `ENOENT: no such file or directory, open '/etc/ra.json'`. */
  readonly message?: string;
  /** Call sites, innermost first. */
  readonly stack?: readonly string[];
}

/** Call sites that are kept. */
const MAX_FRAMES = 12;

/** Describes a thrown value. A message is dropped unless a system call failed: JSON.parse, for example, quotes its input. */
export function describeFault(thrown: unknown): Fault {
  if (!(thrown instanceof Error)) return { name: typeof thrown };
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  const stack = frames(thrown);
  return {
    name: scrub(thrown.name),
    ...(typeof code === 'string' ? { code: scrub(code) } : {}),
    ...(typeof syscall === 'string' ? { message: scrub(thrown.message) } : {}),
    ...(stack.length > 0 ? { stack } : {}),
  };
}

/** The stack's call sites. The stack begins with name and message; if these cannot be separated, nothing is kept. */
function frames(error: Error): string[] {
  const { stack = '', message } = error;
  const end = stack.indexOf(message);
  if (end < 0) return [];
  return stack
    .slice(end + message.length)
    .split('\n')
    .filter((line) => /^ {4}at /.test(line))
    .slice(0, MAX_FRAMES)
    .map((line) => scrub(line.trim()));
}
