/**
 * Prompt hosts: one for bodies that are short enough to be parsed on the event loop, one for all others. A long
 * body can take seconds and may end its host; short requests then continue and never wait behind it. The short lane's
 * host works in its own thread, since a thread switch would take longer than the work. The host for long bodies is forked for the
 * first one: many installations never get any, and it would be most of a prompt host's part in a start. Lines of batches have a host that
 * ends after them, so that nothing of a batch is in memory for long, and no request waits behind them.
 *
 * While a model's weights are replaced there are two sets of hosts, since replicas with the old weights and with the new
 * ones may want prompts made by different tokenizers.
 */
import { overwriteGarbage } from '../../engine/protocol/process-settings.js';
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

/** Sets besides the present one: a reload that failed half-way leaves one, and the next one adds another. */
const MOST_OTHERS = 2;

/** Hosts that are not needed any more and still have bodies, of three lanes. With more than these no further set is started. */
const MOST_RETIRED = 6;

/** One lane's host at one moment. */
export interface PromptHostState extends PromptHostStats {
  readonly lane: Lane;
}

/** {@link PromptHostOptions}, except that `workers` applies to the long lane, and `inlineBytes` is the longest short body. */
export type PromptLanesOptions = Omit<PromptHostOptions, 'name'>;

export type LaneHost = Pick<PromptHostClient, 'ready' | 'models' | 'stats' | 'open' | 'retire' | 'gone' | 'close'>;

/** The hosts of one set of model files, the one for batches from its first body on. */
interface HostSet extends Readonly<Record<'short' | 'long', LaneHost>> {
  readonly models: readonly PromptModel[];
  batch: LaneHost | undefined;
}

export class PromptLanes implements PromptMaker {
  readonly #options: PromptLanesOptions;
  readonly #openHost: (options: PromptHostOptions) => LaneHost;
  #present: HostSet;
  /** Before or after the present one, the one that came last in front. */
  #others: HostSet[] = [];
  /** Those that close once they have no body any more, and when. */
  readonly #retired = new Map<LaneHost, Promise<unknown>>();
  /** Those of batches that were retired last. */
  #forgotten: readonly LaneHost[] = [];
  /** Of the hosts of all sets: a set that takes the place of another begins its own count at 0. */
  readonly #restarts: Record<Lane, number> = { short: 0, long: 0, batch: 0 };
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

  /** Of each host, the one for short bodies first. */
  get states(): readonly PromptHostState[] {
    return (['short', 'long', 'batch'] as const).flatMap((lane) => {
      const stats = this.#present[lane]?.stats();
      return stats ? [{ lane, ...stats, restarts: this.#restarts[lane] }] : [];
    });
  }

  /** What new prompts are made with, by the reports of the present host for short bodies; none before it is ready. */
  get models(): readonly ModelReport[] {
    return this.#present.short.models;
  }

  open(form: BodyForm, body: BodyBytes, owner: WeightedAccount, wanted?: ModelPromptVersion): OpenBody {
    const lane = body.length <= this.#options.inlineBytes ? 'short' : 'long';
    return this.#setFor(wanted)[lane].open(form, body, owner);
  }

  /** Makes the prompts of batches' lines; on the other lanes where the files were replaced since those have read them. */
  readonly ofBatches: PromptMaker = {
    open: (form, body, owner, wanted) => {
      const set = this.#setFor(wanted);
      if (!this.#closed) set.batch ??= this.#host('batch', set.models, 0, false);
      const { batch, short } = set;
      const fits = wanted
        ? batch && makes(batch, wanted)
        : batch?.models.every(({ id, promptVersion }) => makes(short, { model: id, promptVersion }));
      return batch && fits ? batch.open(form, body, owner) : this.open(form, body, owner, wanted);
    },
  };

  /**
   * Garbage of this process is overwritten; then the hosts that have read lines of batches end once they have no body, and further lines get
   * another one. Returns false, and does nothing, while the hosts of the last call have not ended.
   */
  forgetBatches(): boolean {
    if (this.#forgotten.some((host) => this.#retired.has(host))) return false;
    const sets = [this.#present, ...this.#others];
    this.#forgotten = sets.flatMap(({ batch }) => batch ?? []);
    for (const set of sets) set.batch = undefined;
    overwriteGarbage();
    this.#retire(this.#forgotten);
    return true;
  }

  #setFor(wanted: ModelPromptVersion | undefined): HostSet {
    return (wanted && [this.#present, ...this.#others].find(({ short }) => makes(short, wanted))) ?? this.#present;
  }

  /** Starts hosts for these models beside the present ones, once all but a few of the retired have ended. Settles as {@link ready} does. */
  async startNext(models: readonly PromptModel[]): Promise<FirstStart> {
    while (this.#retired.size > MOST_RETIRED) await Promise.race(this.#retired.values());
    if (this.#closed) return { kind: 'unable' };
    const next = this.#make(models);
    this.#others.unshift(next);
    this.#retire(this.#others.splice(MOST_OTHERS).flatMap(hostsOf));
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
    this.#retire(this.#others.splice(0, 1).flatMap(hostsOf));
  }

  /** Prompts are made by the present hosts alone; the others close once they have no body any more. */
  retireOthers(): void {
    this.#retire(this.#others.splice(0).flatMap(hostsOf));
  }

  /** Kills all hosts; pending items fail. Idempotent, and may be called before they are ready. */
  close(): void {
    this.#closed = true;
    for (const host of [...[this.#present, ...this.#others].flatMap(hostsOf), ...this.#retired.keys()]) host.close();
  }

  #retire(hosts: readonly LaneHost[]): void {
    for (const host of hosts) {
      const gone = host.gone.then(() => this.#retired.delete(host));
      this.#retired.set(host, gone);
      host.retire();
    }
  }

  #make(models: readonly PromptModel[]): HostSet {
    const short = this.#host('short', models, 0, false);
    return { models, short, long: this.#host('long', models, this.#options.workers, true), batch: undefined };
  }

  #host(name: Lane, models: readonly PromptModel[], workers: number, onDemand: boolean): LaneHost {
    const hooks: PromptHostOptions['hooks'] = {
      restart: (why, delayMs, lane) => {
        this.#restarts[lane] += 1;
        this.#options.hooks?.restart?.(why, delayMs, lane);
      },
    };
    return this.#openHost({ ...this.#options, name, models, workers, onDemand, hooks });
  }
}

function hostsOf({ short, long, batch }: HostSet): LaneHost[] {
  return batch ? [short, long, batch] : [short, long];
}

/** Whether a host makes this model's prompts with these; absent: with a file that cannot be read. */
function makes(host: LaneHost, one: { readonly model: string; readonly promptVersion: string | undefined }): boolean {
  return host.models.some((report) => report.id === one.model && report.promptVersion === one.promptVersion);
}

/** All lanes as the sidecar uses them. */
export type Prompts = Pick<PromptLanes, keyof PromptLanes>;
