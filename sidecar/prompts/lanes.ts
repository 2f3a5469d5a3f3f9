/**
 * Two prompt hosts: one for bodies that are short enough to be parsed on the event loop, one for all others. A long
 * body can take seconds and may end its host; short requests then continue and never wait behind it. The short lane's
 * host works in its own thread, since a thread switch would take longer than the work. The host for long bodies is forked for the
 * first one: many installations never get any, and it would be most of a prompt host's part in a start.
 *
 * While a model's weights are replaced there are two pairs of hosts, since replicas with the old weights and with the new
 * ones may want prompts made by different tokenizers.
 */
import type { BodyForm } from '../contracts/requests.js';
import type { WeightedAccount } from '../lib/fair-share.js';
import {
  PromptHostClient,
  type FirstStart,
  type Lane,
  type PromptHostOptions,
  type PromptHostStats,
} from './client.js';
import type { ModelReport, PromptModel } from './messages.js';
import type { BodyBytes, ModelPromptVersion, OpenBody, PromptMaker } from './prompt-maker.js';

/** Pairs besides the present one: a reload that failed half-way leaves one, and the next one adds another. */
const MOST_OTHERS = 2;

/** Pairs that are not needed any more and still have bodies. With more than these no further one is started. */
const MOST_RETIRED = 2;

/** One lane's host at one moment. */
export interface PromptHostState extends PromptHostStats {
  readonly lane: Lane;
}

/**
 * {@link PromptHostOptions}, except that `workers` applies to the long lane, and `inlineBytes` is the longest short
 * body.
 */
export type PromptLanesOptions = Omit<PromptHostOptions, 'name'>;

/** One lane's host. */
export type LaneHost = Pick<PromptHostClient, 'ready' | 'models' | 'stats' | 'open' | 'retire' | 'gone' | 'close'>;

/** The hosts of one set of model files. */
type HostPair = Readonly<Record<Lane, LaneHost>>;

export class PromptLanes implements PromptMaker {
  readonly #options: PromptLanesOptions;
  readonly #openHost: (options: PromptHostOptions) => LaneHost;
  #present: HostPair;
  /** Before or after the present one, the one that came last in front. */
  #others: HostPair[] = [];
  /** Those that close once they have no body any more, and when. */
  readonly #retired = new Map<HostPair, Promise<unknown>>();
  /** Of the hosts of all pairs: a pair that takes the place of another begins its own count at 0. */
  readonly #restarts: Record<Lane, number> = { short: 0, long: 0 };
  #closed = false;

  /** Forks the host for short bodies at once. `openHost`: tests pass their own. */
  constructor(
    options: PromptLanesOptions,
    openHost: (options: PromptHostOptions) => LaneHost = (one) => new PromptHostClient(one),
  ) {
    this.#options = options;
    this.#openHost = openHost;
    this.#present = this.#make(options.models);
  }

  /** Settles once the host for short bodies is ready, with its reports about the models, or could not be started. */
  ready(): Promise<FirstStart> {
    return this.#present.short.ready();
  }

  stats(lane: Lane): PromptHostStats {
    return { ...this.#present[lane].stats(), restarts: this.#restarts[lane] };
  }

  /** Both lanes, the short one first. */
  get states(): readonly PromptHostState[] {
    return (['short', 'long'] as const).map((lane) => ({ lane, ...this.stats(lane) }));
  }

  /** What new prompts are made with, by the reports of the present host for short bodies; none before it is ready. */
  get models(): readonly ModelReport[] {
    return this.#present.short.models;
  }

  open(form: BodyForm, body: BodyBytes, owner: WeightedAccount, wanted?: ModelPromptVersion): OpenBody {
    const fit = wanted && [this.#present, ...this.#others].find((pair) => makes(pair, wanted));
    const lane = body.length <= this.#options.inlineBytes ? 'short' : 'long';
    return (fit ?? this.#present)[lane].open(form, body, owner);
  }

  /**
   * Starts hosts for these models beside the present ones, once those of earlier calls have ended but for a few. Settles as
   * {@link ready} does.
   */
  async startNext(models: readonly PromptModel[]): Promise<FirstStart> {
    while (this.#retired.size > MOST_RETIRED) await Promise.race(this.#retired.values());
    if (this.#closed) return { kind: 'unable' };
    const next = this.#make(models);
    this.#others.unshift(next);
    this.#retire(this.#others.splice(MOST_OTHERS));
    return await next.short.ready();
  }

  /** New prompts are made by the hosts that `startNext` started last. */
  switchToNext(): void {
    const [next, ...others] = this.#others;
    if (next === undefined) return;
    this.#others = [this.#present, ...others];
    this.#present = next;
  }

  /** Those that `startNext` started last are not needed: they close once they have no body any more. Not after `switchToNext`. */
  retireNext(): void {
    this.#retire(this.#others.splice(0, 1));
  }

  /** Prompts are made by the present hosts alone; the others close once they have no body any more. */
  retireOthers(): void {
    this.#retire(this.#others.splice(0));
  }

  /** Kills all hosts; pending items fail. Idempotent, and may be called before they are ready. */
  close(): void {
    this.#closed = true;
    for (const { short, long } of [this.#present, ...this.#others, ...this.#retired.keys()]) {
      short.close();
      long.close();
    }
  }

  #retire(pairs: readonly HostPair[]): void {
    for (const pair of pairs) {
      const gone = Promise.all([pair.short.gone, pair.long.gone]).then(() => this.#retired.delete(pair));
      this.#retired.set(pair, gone);
      pair.short.retire();
      pair.long.retire();
    }
  }

  #make(models: readonly PromptModel[]): HostPair {
    const hooks: PromptHostOptions['hooks'] = {
      restart: (why, delayMs, lane) => {
        this.#restarts[lane] += 1;
        this.#options.hooks?.restart?.(why, delayMs, lane);
      },
    };
    const host = (name: Lane, workers: number, onDemand: boolean): LaneHost =>
      this.#openHost({ ...this.#options, name, models, workers, onDemand, hooks });
    return { short: host('short', 0, false), long: host('long', this.#options.workers, true) };
  }
}

function makes({ short }: HostPair, { model, promptVersion }: ModelPromptVersion): boolean {
  return short.models.some((report) => report.id === model && report.promptVersion === promptVersion);
}

function makes({ short }: HostSet, { model, promptVersion }: ModelPromptVersion): boolean {
  return short.models.some((report) => report.id === model && report.promptVersion === promptVersion);
}

/** All lanes as the sidecar uses them. */
export type Prompts = Pick<PromptLanes, keyof PromptLanes>;
