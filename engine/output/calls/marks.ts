/** White space held back, since it is dropped beside a call; more than this is content. */
export const MAX_SPACE = 64;

/** How much of the white space before `at` is held back. */
export function spacesBefore(text: string, at: number): number {
  return Math.min(at - text.slice(0, at).trimEnd().length, MAX_SPACE);
}

/** How much of `text`'s end may be the beginning of `mark`, white space before it not counted. */
export function beginning(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
