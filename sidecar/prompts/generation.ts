/** The prompt hosts of one set of model files: a lane for short bodies and one for long ones. */
import type { BodyForm } from '../contracts/requests.js';
import type { PromptHostOptions, PromptHostStats } from './client-options.js';
import { PromptHostClient, type FirstStart } from './client.js';
import type { Payer } from './payer.js';
import type { OpenBody, Preparation } from './prompt-host.js';

/** The name in logs and process lists. */
export type Lane = 'short' | 'long';

export class Generation {
  readonly #inlineBytes: number;
  readonly #lanes: Readonly<Record<Lane, PromptHostClient>>;
  /** Of each model, as its hosts reported it. */
  readonly #preparations = new Map<string, string>();
  #open = 0;
  #retired: (() => void) | undefined;

  /** Forks both hosts at once. */
  constructor(options: Omit<PromptHostOptions, 'name'>, restart: (why: string, delayMs: number, lane: Lane) => void) {
    this.#inlineBytes = options.inlineBytes;
    const lane = (name: Lane, workers: number): PromptHostClient =>
      new PromptHostClient({
        ...options,
        name,
        workers,
        hooks: { restart: (why, delayMs) => restart(why, delayMs, name) },
      });
    this.#lanes = { short: lane('short', 0), long: lane('long', options.workers) };
  }

  /** Settles once both hosts are ready, with their reports about the models, or once one could not be started. */
  async ready(): Promise<FirstStart> {
    const [short, long] = await Promise.all([this.#lanes.short.ready(), this.#lanes.long.ready()]);
    if (short.kind === 'ready') {
      for (const { id, preparation } of short.models) {
        if (preparation !== undefined) this.#preparations.set(id, preparation);
      }
    }
    return long.kind === 'unable' ? long : short;
  }

  stats(lane: Lane): PromptHostStats {
    return this.#lanes[lane].stats();
  }

  makes({ model, preparation }: Preparation): boolean {
    return this.#preparations.get(model) === preparation;
  }

  open(route: BodyForm, bytes: Uint8Array, payer: Payer): OpenBody {
    const body = this.#lanes[bytes.byteLength <= this.#inlineBytes ? 'short' : 'long'].open(route, bytes, payer);
    let open = true;
    this.#open += 1;
    return {
      check: (signal) => body.check(signal),
      tokenize: (signal) => body.tokenize(signal),
      close: () => {
        body.close();
        if (open) this.#open -= 1;
        open = false;
        if (this.#open === 0) this.#retired?.();
      },
    };
  }

  /** Closes once no body is open, which may be at once. */
  retire(): void {
    this.#retired = () => this.close();
    if (this.#open === 0) this.close();
  }

  /** Kills both hosts; pending items fail. Idempotent, and may be called before they are ready. */
  close(): void {
    this.#lanes.short.close();
    this.#lanes.long.close();
  }
}
