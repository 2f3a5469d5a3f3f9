const PICO_DIGITS = 12;

/** Picodollars as exact USD: `1.5`, `-0.000000042`. */
export function formatUsd(picodollars: bigint): string {
  const digits = String(picodollars < 0n ? -picodollars : picodollars).padStart(PICO_DIGITS + 1, '0');
  const fraction = digits.slice(-PICO_DIGITS).replace(/0+$/, '');
  return `${picodollars < 0n ? '-' : ''}${digits.slice(0, -PICO_DIGITS)}${fraction === '' ? '' : `.${fraction}`}`;
}
