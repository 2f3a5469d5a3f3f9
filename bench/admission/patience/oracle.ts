/**
 * The most good seat time of a queue that knows the distributions of each account’s patience and of the replies’
 * lengths, but no single caller’s patience and no reply’s length. It shares seats between accounts as the real one
 * does, by seat time. Of the next account it seats the request whose seat time is most likely to be good, given how
 * long it has waited; one whose chance is below a part of the best is left to wait. No request is refused, so a seat is
 * free only while no worthwhile caller waits. Several such parts are tried and the best counts. All chances are
 * computed from the traffic’s own distributions.
 */
import { seeded } from '../../support/load.js';
import { Agenda } from '../agenda.js';
import { HOLD_SIGMA, meanOf, PREFILL, SEATS, type Caller, type Endurance, type Kind, type Mix } from './callers.js';

/** Samples for each account, of patience and of lengths together. */
const DRAWS = 2000;
/** Ages for which chances are computed. */
const AGES = 640;
/** A request whose chance is below this part of the best is not seated. */
const PARTS = [0, 0.3, 0.5, 0.7, 0.85] as const;

export interface OracleSetting {
  readonly kind: Kind;
  readonly mix: Mix;
  readonly endurance: Endurance;
  readonly untilMs: number;
  readonly fromMs: number;
  readonly toMs: number;
}

export interface OracleFigures {
  /** Good seat time over all seat time. */
  readonly good: number;
  /** Of long requests, served. */
  readonly longServed: number;
}

/** The best of all parts. */
export function oracle(list: readonly Caller[], setting: OracleSetting): OracleFigures {
  const chances = new Chances(setting);
  let best: OracleFigures = { good: 0, longServed: NaN };
  for (const part of PARTS) {
    const figures = new Run(setting, chances, part).figures(list);
    if (figures.good > best.good) best = figures;
  }
  return best;
}

/** How much of a seat’s time is good, by account and by the time that the request has waited. */
class Chances {
  readonly #stepMs: number;
  readonly #tables = new Map<string, readonly number[]>();
  readonly #setting: OracleSetting;

  constructor(setting: OracleSetting) {
    this.#setting = setting;
    this.#stepMs = meanOf(setting.mix) / 20;
  }

  of(account: number, atMs: number, ageMs: number): number {
    // A patience that changes does so at half time.
    const late = atMs >= this.#setting.untilMs / 2;
    const key = `${account} ${late}`;
    let table = this.#tables.get(key);
    if (table === undefined) this.#tables.set(key, (table = this.#make(account, late ? this.#setting.untilMs : 0)));
    return table[Math.min(AGES - 1, Math.floor(ageMs / this.#stepMs))] ?? 0;
  }

  #make(account: number, atMs: number): readonly number[] {
    const random = seeded(99);
    const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const { endurance, mix, untilMs, kind } = this.#setting;
    const ages = Array.from({ length: AGES }, () => ({ good: 0, held: 0 }));
    for (let draw = 0; draw < DRAWS; draw += 1) {
      const patienceMs = endurance.patienceMs(normal, account, atMs, untilMs);
      const { long } = mix;
      const meanMs = long !== undefined && random() < long.share ? long.meanMs : mix.meanMs;
      const holdMs = meanMs * Math.exp(HOLD_SIGMA * normal() - HOLD_SIGMA ** 2 / 2);
      const neededMs = kind === 'stream' ? holdMs * PREFILL : holdMs;
      for (const [age, sums] of ages.entries()) {
        const left = patienceMs - age * this.#stepMs;
        if (left <= 0) break;
        if (neededMs <= left) sums.good += holdMs;
        sums.held += neededMs <= left ? holdMs : left;
      }
    }
    return ages.map(({ good, held }) => (held > 0 ? good / held : 0));
  }
}

interface Waiting {
  readonly caller: Caller;
  gone: boolean;
}

/** One account: its waiting requests, in the order of arrival, and the seat time that it got. */
interface Share {
  readonly index: number;
  readonly line: Waiting[];
  heldMs: number;
  running: number;
}

/** Requests of one account that are considered for a seat, newest first. */
const LOOKED_AT = 64;

/** One run with one part. */
class Run {
  readonly #agenda = new Agenda();
  readonly #shares = new Map<string, Share>();
  readonly #setting: OracleSetting;
  readonly #chances: Chances;
  readonly #part: number;
  #free = SEATS;
  #accruedAt = 0;
  #good = 0;
  #longServed = 0;
  #long = 0;

  constructor(setting: OracleSetting, chances: Chances, part: number) {
    this.#setting = setting;
    this.#chances = chances;
    this.#part = part;
  }

  figures(list: readonly Caller[]): OracleFigures {
    const { fromMs, toMs, untilMs } = this.#setting;
    const names = [...new Set(list.map(({ account }) => account))].sort();
    names.forEach((name, index) => this.#shares.set(name, { index, line: [], heldMs: 0, running: 0 }));
    this.#schedule(list, 0);
    while (this.#agenda.step(untilMs));
    return { good: this.#good / (SEATS * (toMs - fromMs)), longServed: this.#longServed / this.#long };
  }

  #schedule(list: readonly Caller[], index: number): void {
    const caller = list[index];
    if (caller === undefined) return;
    this.#agenda.after(caller.atMs - this.#agenda.now(), () => {
      this.#schedule(list, index + 1);
      this.#arrive(caller);
    });
  }

  #arrive(caller: Caller): void {
    const share = this.#shares.get(caller.account);
    if (share === undefined) return;
    if (caller.long && this.#measured(caller)) this.#long += 1;
    const { line } = share;
    const request = { caller, gone: false };
    line.push(request);
    this.#seat();
    if (!line.includes(request)) return;
    if (line.length > 2 * LOOKED_AT) line.splice(0, line.length - LOOKED_AT);
    if (Number.isFinite(caller.patienceMs)) this.#agenda.after(caller.patienceMs, () => (request.gone = true));
  }

  #measured({ atMs }: Caller): boolean {
    return atMs >= this.#setting.fromMs && atMs < this.#setting.toMs;
  }

  /** Seat time up to now. */
  #accrue(): void {
    const now = this.#agenda.now();
    for (const share of this.#shares.values()) share.heldMs += share.running * (now - this.#accruedAt);
    this.#accruedAt = now;
  }

  #seat(): void {
    this.#accrue();
    while (this.#free > 0) {
      let chosen: { readonly share: Share; readonly request: Waiting } | undefined;
      for (const share of this.#shares.values()) {
        if (share.line.length === 0 || (chosen !== undefined && share.heldMs >= chosen.share.heldMs)) continue;
        const request = this.#best(share);
        if (request !== undefined) chosen = { share, request };
      }
      if (chosen === undefined) return;
      this.#start(chosen.share, chosen.request);
    }
  }

  /** The request of an account whose seat time is most likely good; undefined: none is worth a seat. */
  #best({ index, line }: Share): Waiting | undefined {
    const now = this.#agenda.now();
    let best: Waiting | undefined;
    let most = this.#part * this.#chances.of(index, now, 0);
    for (const request of line.slice(-LOOKED_AT)) {
      if (request.gone) continue;
      const chance = this.#chances.of(index, request.caller.atMs, now - request.caller.atMs);
      if (chance > 0 && chance >= most) [best, most] = [request, chance];
    }
    return best;
  }

  #start(share: Share, request: Waiting): void {
    const { fromMs, toMs, kind } = this.#setting;
    const { caller } = request;
    share.line.splice(share.line.indexOf(request), 1);
    this.#free -= 1;
    share.running += 1;
    const now = this.#agenda.now();
    const leavesAt = caller.atMs + caller.patienceMs;
    const neededAt = now + (kind === 'stream' ? caller.holdMs * PREFILL : caller.holdMs);
    const served = neededAt <= leavesAt;
    const endsAt = served ? now + caller.holdMs : leavesAt;
    if (served) this.#good += Math.max(0, Math.min(endsAt, toMs) - Math.max(now, fromMs));
    if (served && caller.long && this.#measured(caller)) this.#longServed += 1;
    this.#agenda.after(endsAt - now, () => {
      this.#accrue();
      this.#free += 1;
      share.running -= 1;
      this.#seat();
    });
  }
}
