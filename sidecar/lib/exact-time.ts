/** The length of `2026-06-30`. */
const DAY = 10;

/**
 * Epoch ms of a day or time that begins with its year, month and day, as `Date.parse` reads it; NaN too if there is no
 * such day, where `Date.parse` takes 31 June for 1 July.
 */
export function exactTime(text: string): number {
  const day = text.slice(0, DAY);
  const midnight = Date.parse(`${day}T00:00:00Z`);
  if (Number.isNaN(midnight) || new Date(midnight).toISOString().slice(0, DAY) !== day) return NaN;
  return Date.parse(text);
}
