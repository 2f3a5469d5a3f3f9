/**
 * People and an endless batch on one stand-in engine (sessions/stand-in-engine.ts), on a clock that jumps from event to event: what the
 * batch costs people, and what it gets done.
 */
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { QueueReport } from '../../sidecar/admission/report.js';
import type { Lease } from '../../sidecar/admission/types.js';
import { seeded } from '../support/load.js';
import { Agenda } from './agenda.js';
import { GPU, StandInEngine } from './sessions/stand-in-engine.js';

/**
 * How the batch gets seats: `none`: there is none; `queue`: as class `batch` in the queue; `lent`: lent seats; `again`: the same, where a
 * stopped request begins again, as one that may not vary does; `ideal`: where it goes on later where it was, at no cost.
 */
export type Way = 'none' | 'queue' | 'lent' | 'again' | 'ideal';

export interface Beside {
  readonly way: Way;
  readonly seats: number;
  /** The share of the seats that stays idle. */
  readonly headroom: number;
  /** The mean share of the seats that people use. */
  readonly load: number;
  /** People that come at once. */
  readonly burst: number;
  /** Requests of each batch account that are there at once, by their longest reply in tokens. */
  readonly batches?: Readonly<Record<string, number>>;
  readonly seed: number;
  readonly minutes: number;
}

export interface BesideFigures {
  /** Of people, ms: from the request to its sequence, to its first token, and its mean time between tokens. */
  readonly waits: readonly number[];
  /** Those of `waits` that begin while people leave a seat beside the one that a request of the batch may have in the queue. */
  readonly waitsBesideRoom: readonly number[];
  readonly firstTokens: readonly number[];
  readonly tokens: readonly number[];
  readonly refused: number;
  /** Tokens of whole replies of the batch, a second; and tokens of replies that were stopped, for each of these. */
  readonly batchTokensPerSecond: number;
  readonly wasted: number;
  /** Of each batch account: replies, and seat time in ms, on lent seats and in the queue. */
  readonly replies: Readonly<Record<string, number>>;
  readonly seatMs: Readonly<Record<string, number>>;
  readonly report: QueueReport;
}

const BATCHES = { a: 900, b: 900, c: 900 };
/** Requests of a batch account that wait or run. */
const AT_ONCE = 16;
const PROMPT = [200, 1000] as const;
const REPLY = [60, 440] as const;
const ITEM_PROMPT = [200, 1800] as const;
const LEAST_ITEM_REPLY = 100;

/** Deterministic. */
export async function beside(load: Beside): Promise<BesideFigures> {
  const run = new Simulation(load);
  run.begin();
  while (run.agenda.step(load.minutes * 60_000)) for (let turn = 0; turn < 6; turn += 1) await Promise.resolve();
  return run.figures();
}

/** One request of the batch. */
interface Item {
  readonly account: string;
  readonly promptTokens: number;
  readonly replyTokens: number;
  /** Tokens of the prompt and of the reply that it need not compute again. */
  hadPrompt: number;
  hadReply: number;
}

class Simulation {
  readonly agenda = new Agenda();
  readonly #load: Beside;
  readonly #random: () => number;
  readonly #batchRandom: () => number;
  readonly #engine: StandInEngine;
  readonly #queue: SeatQueue;
  readonly #waits: number[] = [];
  readonly #waitsBesideRoom: number[] = [];
  readonly #firstTokens: number[] = [];
  readonly #tokens: number[] = [];
  readonly #replies: Record<string, number> = {};
  readonly #seatMs: Record<string, number> = {};
  /** People whose request waits or runs. */
  #present = 0;
  #refused = 0;
  #done = 0;
  #wasted = 0;
  #contents = 0;

  constructor(load: Beside) {
    this.#load = load;
    this.#random = seeded(load.seed);
    this.#batchRandom = seeded(load.seed + 1);
    this.#engine = new StandInEngine(this.agenda, GPU, load.seats, 0);
    this.#queue = new SeatQueue({
      clock: this.agenda,
      random: seeded(load.seed + 2),
      config: { maxWaitMs: 10_000, waitingPerSeat: 16, waitingBytes: Infinity },
      seats: load.seats,
      headroom: load.way === 'queue' ? 1 : load.headroom,
    });
  }

  begin(): void {
    const { seats, load, burst, way, batches = BATCHES } = this.#load;
    // Of a request alone on half of the seats.
    const holdMs = mean(PROMPT) * GPU.tokenMs + mean(REPLY) * GPU.stepMs(Math.ceil(seats / 2));
    const everyMs = (holdMs * burst) / (load * seats);
    const come = (): void => {
      for (let i = 0; i < burst; i += 1) this.#person();
      this.agenda.after(-Math.log(1 - this.#random()) * everyMs, come);
    };
    this.agenda.after(1000, come);
    if (way === 'none') return;
    for (const [account, longest] of Object.entries(batches)) {
      for (let i = 0; i < AT_ONCE; i += 1) this.agenda.after(i, () => this.#batch(account, longest));
    }
  }

  figures(): BesideFigures {
    const seconds = this.#load.minutes * 60;
    return {
      waits: this.#waits,
      waitsBesideRoom: this.#waitsBesideRoom,
      firstTokens: this.#firstTokens,
      tokens: this.#tokens,
      refused: this.#refused,
      batchTokensPerSecond: this.#done / seconds,
      wasted: this.#wasted / Math.max(1, this.#done),
      replies: this.#replies,
      seatMs: this.#seatMs,
      report: this.#queue.report(100),
    };
  }

  #person(): void {
    const at = this.agenda.now();
    const [promptTokens, replyTokens] = [between(PROMPT, this.#random()), between(REPLY, this.#random())];
    const content = (this.#contents += 1);
    const account = `people ${content % 4}`;
    const ticket = this.#queue.enter({ account, weight: 4, bytes: 1, seatsWanted: 1, awaits: 'first-token' });
    if ('kind' in ticket) {
      this.#refused += 1;
      return;
    }
    const hasRoom = this.#present < this.#load.seats - 1;
    this.#present += 1;
    ticket.ready({ promptTokens });
    void ticket.outcome.then((outcome) => {
      if (outcome.kind !== 'seated') {
        this.#refused += 1;
        this.#present -= 1;
        return;
      }
      const { lease } = outcome;
      let firstAt = 0;
      this.#run(content, account, promptTokens, replyTokens, {
        started: () => {
          this.#waits.push(this.agenda.now() - at);
          if (hasRoom) this.#waitsBesideRoom.push(this.agenda.now() - at);
        },
        first: () => {
          firstAt = this.agenda.now();
          this.#firstTokens.push(firstAt - at);
          lease.begun();
        },
        ended: () => {
          this.#tokens.push((this.agenda.now() - firstAt) / Math.max(1, replyTokens - 1));
          this.#present -= 1;
          lease.release('done');
        },
      });
    });
  }

  #run(
    session: number,
    account: string,
    promptTokens: number,
    replyTokens: number,
    events: { readonly started?: () => void; readonly first?: () => void; readonly ended: () => void },
    background = false,
  ): ReturnType<StandInEngine['run']> {
    const nothing = (): void => undefined;
    return this.#engine.run({
      session,
      account,
      promptTokens,
      sharedTokens: 0,
      replyTokens,
      claims: undefined,
      ...(background && { background: true as const }),
      started: events.started ?? nothing,
      first: events.first ?? nothing,
      ended: events.ended,
    });
  }

  #batch(account: string, longest: number): void {
    const promptTokens = between(ITEM_PROMPT, this.#batchRandom());
    const replyTokens = between([LEAST_ITEM_REPLY, longest], this.#batchRandom());
    const again = (): void => this.#batch(account, longest);
    this.#ask({ account, promptTokens, replyTokens, hadPrompt: 0, hadReply: 0 }, again);
  }

  #ask(item: Item, next: () => void): void {
    const { account } = item;
    const lent = this.#load.way !== 'queue';
    const ticket = this.#queue.enter({ account, weight: 1, bytes: 1, seatsWanted: 1, awaits: 'end', lent });
    if ('kind' in ticket) {
      this.agenda.after(ticket.retryAfterMs, () => this.#ask(item, next));
      return;
    }
    ticket.ready({ promptTokens: item.promptTokens });
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'seated') this.#work(item, outcome.lease, next);
      else this.agenda.after(1000, () => this.#ask(item, next));
    });
  }

  #work(item: Item, lease: Lease, next: () => void): void {
    const { account, replyTokens } = item;
    const evaluated = this.#load.way === 'ideal' ? 0 : item.hadReply;
    const prompt = Math.max(1, item.promptTokens - item.hadPrompt) + evaluated;
    const from = this.agenda.now();
    const charge = (): void => {
      this.#seatMs[account] = (this.#seatMs[account] ?? 0) + this.agenda.now() - from;
    };
    const ended = (): void => {
      lease.release('done');
      charge();
      this.#done += replyTokens;
      this.#replies[account] = (this.#replies[account] ?? 0) + 1;
      next();
    };
    const cancel = this.#run(
      (this.#contents += 1),
      account,
      prompt,
      replyTokens - item.hadReply,
      { ended },
      lease.lent,
    );
    lease.whenRecalled(() => {
      const { at, made } = cancel();
      charge();
      if (this.#load.way === 'ideal') item.hadPrompt += at;
      if (this.#load.way === 'again') this.#wasted += made;
      else item.hadReply += made;
      queueMicrotask(() => {
        void lease.giveBack().then((outcome) => {
          if (outcome.kind === 'seated') this.#work(item, outcome.lease, next);
          else this.agenda.after(1000, () => this.#ask(item, next));
        });
      });
      return undefined;
    });
  }
}

function between([least, most]: readonly [number, number], random: number): number {
  return Math.round(least + (most - least) * random);
}

function mean([least, most]: readonly [number, number]): number {
  return (least + most) / 2;
}
