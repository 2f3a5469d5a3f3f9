/** The prompt hosts of one set of model files: a lane for short bodies and one for long ones. */
import type { BodyForm } from '../contracts/requests.js';
import type { PromptHostOptions, PromptHostStats } from './client-options.js';
import { PromptHostClient, type FirstStart } from './client.js';
import type { WeightedAccount } from '../lib/fair-share.js';
import type { BodyBytes, OpenBody, ModelPromptVersion } from './prompt-maker.js';

/** The name in logs and process lists. */
export type Lane = 'short' | 'long';

/** One lane's host. */
export type LaneHost = Pick<PromptHostClient, 'ready' | 'stats' | 'open' | 'close'>;

export class HostPair {
  readonly #inlineBytes: number;
  readonly #lanes: Readonly<Record<Lane, LaneHost>>;
  /** Of each model, as its hosts reported it. */
  readonly #promptVersions = new Map<string, string>();
  /** Bodies that are neither tokenized nor closed: nothing else needs the hosts. */
  #open = 0;
  #retired = false;
  #markGone!: () => void;
  /** Settles once it is closed. */
  readonly gone: Promise<void>;

  constructor(lanes: Readonly<Record<Lane, LaneHost>>, inlineBytes: number) {
    this.#lanes = lanes;
    this.#inlineBytes = inlineBytes;
    this.gone = new Promise((settle) => (this.#markGone = settle));
  }

  /** Settles once both hosts are ready, with their reports about the models, or once one could not be started. */
  async ready(): Promise<FirstStart> {
    const [short, long] = await Promise.all([this.#lanes.short.ready(), this.#lanes.long.ready()]);
    if (short.kind === 'ready') {
      for (const { id, promptVersion } of short.models) {
        if (promptVersion !== undefined) this.#promptVersions.set(id, promptVersion);
      }
    }
    return long.kind === 'unable' ? long : short;
  }

  stats(lane: Lane): PromptHostStats {
    return this.#lanes[lane].stats();
  }

  makes({ model, promptVersion }: ModelPromptVersion): boolean {
    return this.#promptVersions.get(model) === promptVersion;
  }

  open(form: BodyForm, source: BodyBytes, owner: WeightedAccount): OpenBody {
    const body = this.#lanes[source.length <= this.#inlineBytes ? 'short' : 'long'].open(form, source, owner);
    let open = true;
    this.#open += 1;
    const served = (): void => {
      if (!open) return;
      open = false;
      this.#open -= 1;
      if (this.#retired) this.#closeUnused();
    };
    return {
      check: (signal) => body.check(signal),
      tokenize: (signal) => body.tokenize(signal).finally(served),
      close: () => {
        body.close();
        served();
      },
    };
  }

  /** Closes once no body needs it, which may be at once: at the latest when the hosts are killed for a body that takes too long. */
  retire(): void {
    this.#retired = true;
    this.#closeUnused();
  }

  /** Kills both hosts; pending items fail. Idempotent, and may be called before they are ready. */
  close(): void {
    this.#lanes.short.close();
    this.#lanes.long.close();
    this.#markGone();
  }

  #closeUnused(): void {
    if (this.#open === 0) this.close();
  }
}

/** Forks both hosts at once. */
export function openHostPair(
  options: Omit<PromptHostOptions, 'name'>,
  restart: (why: string, delayMs: number, lane: Lane) => void,
): HostPair {
  const lane = (name: Lane, workers: number): LaneHost =>
    new PromptHostClient({
      ...options,
      name,
      workers,
      hooks: { restart: (why, delayMs) => restart(why, delayMs, name) },
    });
  return new HostPair({ short: lane('short', 0), long: lane('long', options.workers) }, options.inlineBytes);
}
