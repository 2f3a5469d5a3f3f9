/**
 * Two prompt hosts: one for bodies that are short enough to be parsed on the event loop, one for all others. A long
 * body can take seconds and may end its host; short requests then continue and never wait behind it. The short lane's
 * host works in its own thread, since a thread switch would take longer than the work.
 */
import type { BodyForm } from '../contracts/requests.js';
import type { PromptHostOptions, PromptHostStats } from './client-options.js';
import { PromptHostClient, type FirstStart } from './client.js';
import type { Payer } from './payer.js';
import type { OpenBody, PromptHost } from './prompt-host.js';

/** The name in logs and process lists. */
export type Lane = 'short' | 'long';

/** One lane's host at one moment. */
export interface PromptHostState extends PromptHostStats {
  readonly lane: Lane;
}

/**
 * {@link PromptHostOptions}, except that `workers` applies to the long lane, and `inlineBytes` is the longest short
 * body.
 */
export interface PromptLanesOptions extends Omit<PromptHostOptions, 'name' | 'hooks'> {
  readonly hooks?: {
    /** A lane's host has ended and its next one starts in `delayMs`. */
    restart?(why: string, delayMs: number, lane: Lane): void;
  };
}

export class PromptLanes implements PromptHost {
  readonly #inlineBytes: number;
  readonly #lanes: Readonly<Record<Lane, PromptHostClient>>;

  /** Forks both hosts at once. */
  constructor({ hooks, ...options }: PromptLanesOptions) {
    this.#inlineBytes = options.inlineBytes;
    const lane = (name: Lane, workers: number): PromptHostClient =>
      new PromptHostClient({
        ...options,
        name,
        workers,
        hooks: { restart: (why, delayMs) => hooks?.restart?.(why, delayMs, name) },
      });
    this.#lanes = { short: lane('short', 0), long: lane('long', options.workers) };
  }

  /** Settles once both hosts are ready, with their reports about the models, or once one could not be started. */
  async ready(): Promise<FirstStart> {
    const [short, long] = await Promise.all([this.#lanes.short.ready(), this.#lanes.long.ready()]);
    return long.kind === 'unable' ? long : short;
  }

  stats(lane: Lane): PromptHostStats {
    return this.#lanes[lane].stats();
  }

  /** Both lanes, the short one first. */
  get states(): readonly PromptHostState[] {
    return (['short', 'long'] as const).map((lane) => ({ lane, ...this.stats(lane) }));
  }

  open(route: BodyForm, bytes: Uint8Array, payer: Payer): OpenBody {
    return this.#lanes[bytes.byteLength <= this.#inlineBytes ? 'short' : 'long'].open(route, bytes, payer);
  }

  /** Kills both hosts; pending items fail. Idempotent, and may be called before they are ready. */
  close(): void {
    this.#lanes.short.close();
    this.#lanes.long.close();
  }
}

/** Both lanes as the sidecar uses them. */
export type Prompts = Pick<PromptLanes, 'ready' | 'states' | 'open' | 'close'>;

/** Forks both hosts at once. */
export function openPrompts(options: PromptLanesOptions): Prompts {
  return new PromptLanes(options);
}
