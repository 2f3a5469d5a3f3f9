/** Agents, single requests and the seat queue, with a stand-in engine, on a clock that jumps from event to event. */
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { QueueReport } from '../../../sidecar/admission/report.js';
import type { Lease, Refused } from '../../../sidecar/admission/types.js';
import { jain } from '../../../sidecar/admission/state.js';
import { seeded } from '../../support/load.js';
import { quantile } from '../../support/stats.js';
import { Agenda } from '../agenda.js';
import { StandInEngine, type Device } from './stand-in-engine.js';

/** A load of agents. */
export interface Agents {
  readonly device: Device;
  readonly seats: number;
  /** Tokens of the host cache; 0: none. */
  readonly hostTokens?: number;
  /** Agents of each account. Each works on one session after the other. */
  readonly agents: readonly number[];
  /** Sessions that begin by themselves, beside those of the agents, an hour. */
  readonly openPerHour?: number;
  readonly turns?: number;
  /** Tokens of the first and the last prompt, and of a reply. */
  readonly promptTokens?: readonly [first: number, last: number];
  readonly replyTokens?: readonly [least: number, most: number];
  /** Mean pause between two turns, ms; `tools`: 0.3 s mostly, seldom seconds, rarely half a minute (vLLM router#285). */
  readonly pauseMs?: number | 'tools';
  /** A session's prompt is shortened to its first length at this turn. */
  readonly compactsAt?: number;
  /** Each session has a second one beside it, of five turns, from this turn on. */
  readonly forksAt?: number;
  /** Requests of one light account that are no turns, a second. */
  readonly singlesPerSecond?: number;
  /** People of another light account: each has one chat after the other, of six turns up to 3,000 tokens, and reads for half a minute. */
  readonly chats?: number;
  readonly keepMaxMs: number;
  readonly seed: number;
  /** Simulated time that is counted, after ten minutes that are not. */
  readonly minutes: number;
}

export interface AgentFigures {
  /** Share of the prompt tokens of all requests that was not computed again. */
  readonly reused: number;
  readonly turnsPerSecond: number;
  /** From a turn's first try to the end of its reply, s: of agents' first turns, of further ones, of single requests, of chats. */
  readonly first: readonly number[];
  readonly further: readonly number[];
  readonly singles: readonly number[];
  readonly chats: readonly number[];
  /** From a session's first try to its end, s. */
  readonly sessions: readonly number[];
  /** Jain's index of the turns of the accounts with agents, over the seats that each has by max-min fairness. */
  readonly jain: number;
  readonly turnsOf: readonly number[];
  readonly refused: number;
  /** Of those who returned after a Retry-After of less than 59 s, the share that then got a seat. */
  readonly returned: number;
  readonly report: QueueReport;
}

const WARM_UP_MS = 600_000;
const SHARED_PART = 0.85;
const CHUNK = 64;
const SINGLE_TOKENS = 500;
const SINGLES = 'singles';
const CHATS = 'chats';
const CHAT = { promptTokens: [500, 3000], pauseMs: 30_000, turns: 6 } as const;
const MAX_WAIT_MS = 10_000;
/** A Retry-After that is as long as clients wait tells no time at which a seat is free. */
const LONGEST_RETRY_MS = 59_000;

/** What one session is made of. */
type Shape = Pick<Agents, 'promptTokens' | 'pauseMs' | 'compactsAt' | 'forksAt' | 'turns'>;

/** One request until it was answered. */
interface Asked {
  readonly account: string;
  /** The list that its time is kept in. */
  readonly times: number[];
  /** Of the state in the engine; another one after compaction. */
  readonly content: number;
  readonly turn: number;
  readonly promptTokens: number;
  readonly replyTokens: number;
  readonly sharedTokens: number;
  readonly askedAt: number;
  readonly answered: () => void;
}

/** Deterministic. */
export async function simulate(load: Agents): Promise<AgentFigures> {
  const run = new Simulation(load);
  const untilMs = WARM_UP_MS + load.minutes * 60_000;
  run.begin();
  while (run.agenda.step(untilMs)) for (let turn = 0; turn < 4; turn += 1) await Promise.resolve();
  return run.figures();
}

class Simulation {
  readonly agenda = new Agenda();
  readonly #load: Agents;
  readonly #random: () => number;
  readonly #engine: StandInEngine;
  readonly #queue: SeatQueue;
  readonly #first: number[] = [];
  readonly #further: number[] = [];
  readonly #singles: number[] = [];
  readonly #chats: number[] = [];
  readonly #sessions: number[] = [];
  readonly #turnsOf: number[];
  #before = { prompt: 0, cached: 0 };
  #contents = 0;
  #refused = 0;
  #returns = 0;
  #served = 0;

  constructor(load: Agents) {
    this.#load = load;
    this.#random = seeded(load.seed);
    const { seats, hostTokens = 0, keepMaxMs } = load;
    this.#engine = new StandInEngine(this.agenda, load.device, seats, hostTokens);
    this.#turnsOf = load.agents.map(() => 0);
    this.#queue = new SeatQueue({
      clock: this.agenda,
      random: seeded(load.seed + 1),
      config: { maxWaitMs: MAX_WAIT_MS, waitingPerSeat: 8, waitingBytes: Infinity },
      seats,
      ...(keepMaxMs > 0 && { sessions: { keepMaxMs, hasCache: hostTokens > 0 } }),
    });
  }

  begin(): void {
    const { agents, openPerHour = 0, singlesPerSecond = 0, chats = 0 } = this.#load;
    agents.forEach((count, account) => {
      for (let i = 0; i < count; i += 1) this.agenda.after(this.#random() * 60_000, () => this.#work(account));
    });
    for (let i = 0; i < chats; i += 1) this.agenda.after(this.#random() * 60_000, () => this.#chat());
    this.#poisson(openPerHour / 3600, () => this.#session(Math.floor(this.#random() * agents.length), () => undefined));
    this.#poisson(singlesPerSecond, () => {
      this.#ask({
        account: SINGLES,
        times: this.#singles,
        content: (this.#contents += 1),
        turn: 0,
        promptTokens: SINGLE_TOKENS,
        replyTokens: this.#replyTokens(),
        sharedTokens: 0,
        askedAt: this.agenda.now(),
        answered: () => undefined,
      });
    });
    this.agenda.after(WARM_UP_MS, () => {
      this.#before = { prompt: this.#engine.promptTokens, cached: this.#engine.cachedTokens };
    });
  }

  figures(): AgentFigures {
    const { agents, minutes, seats } = this.#load;
    const fair = fairSeats(seats, agents);
    const { promptTokens, cachedTokens } = this.#engine;
    const turns = this.#turnsOf.reduce((sum, count) => sum + count, 0);
    return {
      reused: (cachedTokens - this.#before.cached) / (promptTokens - this.#before.prompt),
      turnsPerSecond: turns / (minutes * 60),
      first: this.#first,
      further: this.#further,
      singles: this.#singles,
      chats: this.#chats,
      sessions: this.#sessions,
      jain: jain(this.#turnsOf.map((count, account) => count / (fair[account] ?? 1)).filter(Number.isFinite)),
      turnsOf: this.#turnsOf,
      refused: this.#refused,
      returned: this.#served / this.#returns,
      report: this.#queue.report(100),
    };
  }

  #poisson(perSecond: number, event: () => void): void {
    if (perSecond === 0) return;
    const next = (): void => {
      event();
      this.agenda.after((-Math.log(1 - this.#random()) / perSecond) * 1000, next);
    };
    this.agenda.after(1000, next);
  }

  /** An agent: one session after the other. */
  #work(account: number): void {
    this.#session(account, () => this.agenda.after(1000 + 4000 * this.#random(), () => this.#work(account)));
  }

  /** A person of the account of chats. */
  #chat(): void {
    this.#session(undefined, () => this.agenda.after(this.#pauseMs(CHAT.pauseMs), () => this.#chat()), CHAT);
  }

  /** `account`: undefined: that of chats. */
  #session(account: number | undefined, ended: () => void, shape: Shape = this.#load): void {
    const { promptTokens: [first, last] = [4000, 40_000], compactsAt, forksAt, pauseMs, turns = 20 } = shape;
    const begunAt = this.agenda.now();
    const grows = (last - first) / Math.max(1, turns - 1);
    let content = (this.#contents += 1);
    let promptTokens = first;
    const ask = (turn: number): void => {
      const replyTokens = this.#replyTokens();
      if (turn === forksAt && turns > 5) this.#session(account, () => undefined, { ...shape, turns: 5 });
      this.#ask({
        account: account === undefined ? CHATS : `account ${account}`,
        times: account === undefined ? this.#chats : turn === 1 ? this.#first : this.#further,
        content,
        turn,
        promptTokens,
        replyTokens,
        sharedTokens: SHARED_PART * first,
        askedAt: this.agenda.now(),
        answered: () => {
          if (this.#counts && account !== undefined) this.#turnsOf[account] = (this.#turnsOf[account] ?? 0) + 1;
          if (turn === turns) {
            if (this.#counts && account !== undefined) this.#sessions.push((this.agenda.now() - begunAt) / 1000);
            ended();
            return;
          }
          const more = Math.max(8, grows - replyTokens + (this.#random() - 0.5) * grows);
          promptTokens = Math.round(promptTokens + replyTokens + more);
          if (turn + 1 === compactsAt) {
            promptTokens = first;
            content = this.#contents += 1;
          }
          this.agenda.after(this.#pauseMs(pauseMs), () => ask(turn + 1));
        },
      });
    };
    ask(1);
  }

  /** Asks until it is answered: a refused request returns after Retry-After. */
  #ask(asked: Asked, isPromised = false): void {
    const { account, content, turn, promptTokens, sharedTokens } = asked;
    const refused = (refusal: Refused): void => {
      this.#refused += this.#counts ? 1 : 0;
      if (isPromised) this.#returns += this.#counts ? 1 : 0;
      const isShort = refusal.retryAfterMs < LONGEST_RETRY_MS;
      this.agenda.after(refusal.retryAfterMs, () => this.#ask(asked, isShort));
    };
    const isTurn = turn > 0;
    const ticket = this.#queue.enter({
      account,
      weight: 4,
      bytes: promptTokens,
      seatsWanted: 1,
      awaits: 'first-token',
      bodyDigest: `${content} ${turn}`,
      ...(isTurn && { session: { name: undefined } }),
    });
    if ('kind' in ticket) {
      refused(ticket);
      return;
    }
    const prefix = Uint32Array.from({ length: Math.floor(promptTokens / CHUNK) }, (_, i) => {
      return (i + 1) * CHUNK <= sharedTokens
        ? mixed(account.length + account.charCodeAt(account.length - 1), i)
        : mixed(1000 + content, i);
    });
    ticket.ready({ promptTokens, prefix });
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'refused') refused(outcome);
      if (outcome.kind !== 'seated') return;
      if (isPromised) {
        this.#returns += this.#counts ? 1 : 0;
        this.#served += this.#counts ? 1 : 0;
      }
      this.#serve(asked, outcome.lease);
    });
  }

  #serve(asked: Asked, lease: Lease): void {
    const { account, content, promptTokens, replyTokens, sharedTokens } = asked;
    const handedOverAt = this.agenda.now();
    let cached = 0;
    this.#engine.run({
      session: content,
      account,
      promptTokens,
      sharedTokens,
      replyTokens,
      claims: lease.claims,
      started: (tokens) => (cached = tokens),
      first: () => {
        lease.begun();
        lease.prefilled(this.agenda.now() - handedOverAt, cached);
      },
      ended: () => {
        lease.release('done');
        if (this.#counts) asked.times.push((this.agenda.now() - asked.askedAt) / 1000);
        asked.answered();
      },
    });
  }

  get #counts(): boolean {
    return this.agenda.now() >= WARM_UP_MS;
  }

  #replyTokens(): number {
    const [least, most] = this.#load.replyTokens ?? [60, 440];
    return Math.max(1, Math.round(least + (most - least) * this.#random()));
  }

  #pauseMs(pauseMs: number | 'tools' = 'tools'): number {
    const exponential = -Math.log(1 - this.#random());
    if (pauseMs !== 'tools') return pauseMs * exponential;
    const kind = this.#random();
    if (kind < 0.865) return 300 * exponential;
    return kind < 0.951 ? 1000 + 3000 * exponential : 10_000 + 20_000 * exponential;
  }
}

/** A hash of two numbers. */
function mixed(a: number, b: number): number {
  let hash = Math.imul(a, 0x9e3779b1) ^ Math.imul(b + 1, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 12)) >>> 0;
}

/** Seats of each account by max-min fairness, if each of its agents wants one. */
function fairSeats(seats: number, agents: readonly number[]): number[] {
  let [level, left] = [0, seats];
  const wanting = (): number[] => agents.filter((count) => count > level);
  for (let above = wanting(); left > 0 && above.length > 0; above = wanting()) {
    const step = Math.min(left / above.length, Math.min(...above) - level);
    level += step;
    left -= step * above.length;
  }
  return agents.map((count) => Math.min(count, level));
}

/** A quantile of a list, or NaN of an empty one. */
export function at(list: readonly number[], part: number): number {
  return list.length === 0 ? NaN : quantile(list, part);
}
