/** What a model takes of one kind of memory, bytes. */
export interface Need {
  readonly weights: number;
  /** Past state of one seat of full length. */
  readonly perSeat: number;
  /** Buffers for one step. */
  readonly compute: number;
}

/** Kept free whatever is loaded: for the sidecar, its prompt host and what else the machine runs; bytes. */
export const RESERVE = 256 * 1024 * 1024;

/**
 * Why a model with these seats does not fit into what is free, in one line with the numbers and with what would fit;
 * undefined when it fits. The line goes on after the model's name. `where`: `memory`, `GPU memory`.
 */
export function misfit(
  need: Need,
  { seats, contextPerSeat }: { readonly seats: number; readonly contextPerSeat: number },
  free: number,
  where: string,
): string | undefined {
  const { weights, perSeat, compute } = need;
  const total = weights + perSeat * seats + compute;
  const usable = Math.max(0, free - RESERVE);
  if (total <= usable) return undefined;
  const parts =
    `weights ${gib(weights)}, KV ${gib(perSeat * seats)} for ${count(seats, 'seat')} of ` +
    `${contextPerSeat.toLocaleString('en')} tokens, compute ${gib(compute)}`;
  return (
    `it needs ${gib(total)} GiB of ${where} (${parts}) and ${gib(usable)} GiB are free. ` +
    remedy(Math.floor((usable - weights - compute) / perSeat))
  );
}

/** The same for weights alone, before anything is known of the context. */
export function tooHeavy(weights: number, free: number, where: string): string | undefined {
  const usable = Math.max(0, free - RESERVE);
  if (weights <= usable) return undefined;
  return `its weights alone need ${gib(weights)} GiB of ${where} and ${gib(usable)} GiB are free: use a smaller model`;
}

function remedy(seats: number): string {
  return seats >= 1
    ? `Fewer seats or a smaller context fit: at most ${count(seats, 'seat')}`
    : 'Not even one seat fits: use a smaller context or a smaller model';
}

function count(number: number, what: string): string {
  return `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;
}

/** One decimal, two below 1: small models are not to look as if they took nothing. */
function gib(bytes: number): string {
  const value = bytes / 2 ** 30;
  return value.toLocaleString('en', { maximumFractionDigits: value < 1 ? 2 : 1 });
}
