import type { Fit } from '../../protocol/inspect-messages.js';
import { MOST_SEATS } from '../../protocol/setup.js';

/** What a model takes of one kind of memory, bytes. */
export interface Need extends Omit<Fit, 'repacked' | 'total' | 'usable'> {
  /** At most, for tokens that are drafted: logits of a step, and for each seat what they are looked up in; absent: none. */
  readonly drafts?: { readonly logits: number; readonly perSeat: number };
}

/** Kept free: for the sidecar, its prompt host and other processes; bytes. */
export const RESERVE = 256 * 1024 * 1024;

/** A size that is asked for. */
interface Wanted {
  readonly seats: number;
  /** Tokens. */
  readonly contextPerSeat: number;
}

/** The part of `free` that a model may use, bytes. */
export function usableOf(free: number): number {
  return Math.max(0, free - RESERVE);
}

/** What a model takes with so many seats, bytes. */
export function totalOf(need: Need, seats: number): number {
  return fixedOf(need) + eachOf(need) * seats;
}

function fixedOf({ weights, compute, checkpoints = 0, prefixCache = 0, grammars, drafts }: Need): number {
  return weights + compute + checkpoints + prefixCache + (grammars?.stores ?? 0) + (drafts?.logits ?? 0);
}

function eachOf({ perSeat, grammars, drafts }: Need): number {
  return perSeat + (grammars?.perSeat ?? 0) + (drafts?.perSeat ?? 0);
}

/** Seats that fit into `usable` bytes, at most {@link MOST_SEATS}; 0: not even one. */
export function seatsThatFit(need: Need, usable: number): number {
  const left = usable - fixedOf(need);
  return left < 0 ? 0 : Math.min(MOST_SEATS, Math.floor(left / eachOf(need)));
}

/**
 * Why a model with these seats does not fit into the free memory, in one line with the numbers and with what would fit;
 * undefined if it fits. The line follows the model's name. `where`: `memory`, `GPU memory`.
 */
export function misfit(need: Need, wanted: Wanted, free: number, where: string): string | undefined {
  const { weights, perSeat, compute, checkpoints = 0, prefixCache = 0, grammars, drafts } = need;
  const { seats, contextPerSeat } = wanted;
  const total = totalOf(need, seats);
  const usable = usableOf(free);
  if (total <= usable) return undefined;
  const parts = [
    `weights ${gib(weights)}`,
    `KV ${gib(perSeat * seats)} for ${count(seats, 'seat')} of ${contextPerSeat.toLocaleString('en')} tokens`,
    `compute ${gib(compute)}`,
    ...(checkpoints > 0 ? [`checkpoints ${gib(checkpoints)}`] : []),
    ...(prefixCache > 0 ? [`prefix cache ${gib(prefixCache)}`] : []),
    ...(grammars ? [`grammars ${gib(grammars.stores + grammars.perSeat * seats)}`] : []),
    ...(drafts ? [`drafts ${gib(drafts.logits + drafts.perSeat * seats)}`] : []),
  ].join(', ');
  return `it needs ${gib(total)} GiB of ${where} (${parts}) and ${freeText(free, total)}. ${remedy(need, wanted, usable)}`;
}

/** The same for weights alone, before anything is known of the context. */
export function tooHeavy(weights: number, free: number, where: string): string | undefined {
  const usable = usableOf(free);
  if (weights <= usable) return undefined;
  return `its weights alone need ${gib(weights)} GiB of ${where} and ${freeText(free, weights)}: ${weights <= free ? 'free some memory, or ' : ''}use a smaller model`;
}

/** `10 GiB are free`, less what is kept free, which is named where it is the reason or nothing is left beside it. */
function freeText(free: number, needed: number): string {
  const usable = usableOf(free);
  if (free <= 0 || (usable > 0 && needed > free)) return `${gib(usable)} GiB are free`;
  const kept = `${gib(RESERVE)} GiB are kept for other processes (engine.checkMemory: false turns this check off)`;
  return `${gib(usable)} GiB may be used: ${gib(free)} GiB are free, of which ${kept}`;
}

/** What else helps where a GPU's memory is short. */
const FEWER_LAYERS = '; or set gpuLayers: the CPU computes the layers beyond that number, many times slower';

/** The first problem of host and GPU memory, with what helps; undefined if both are enough. */
export function firstProblem(memory: string | undefined, gpuMemory: string | undefined): string | undefined {
  return memory ?? (gpuMemory === undefined ? undefined : `${gpuMemory}${FEWER_LAYERS}`);
}

/** Suggested contexts are multiples of this, tokens. */
const CONTEXT_STEP = 256;

/** Past state grows evenly with seats and with tokens, so either can be reduced. */
function remedy(need: Need, { seats, contextPerSeat }: Wanted, usable: number): string {
  const fitting = seatsThatFit(need, usable);
  const left = usable - fixedOf(need) - (eachOf(need) - need.perSeat) * seats;
  const tokens = Math.floor((left / (need.perSeat * seats)) * (contextPerSeat / CONTEXT_STEP)) * CONTEXT_STEP;
  const shorter = tokens >= CONTEXT_STEP ? `${tokens.toLocaleString('en')} tokens for each of ${seats}` : undefined;
  if (fitting >= 1) {
    const fewer = `at most ${count(fitting, 'seat')}`;
    return `Fewer seats or a smaller context fit: ${fewer}${shorter === undefined || seats === 1 ? '' : `, or ${shorter}`}`;
  }
  return 'Not even one seat fits: use a smaller context or a smaller model';
}

function count(number: number, what: string): string {
  return `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;
}

/** One decimal, two below 1, so that small models do not show 0. */
function gib(bytes: number): string {
  const value = bytes / 2 ** 30;
  return value.toLocaleString('en', { maximumFractionDigits: value < 1 ? 2 : 1 });
}
