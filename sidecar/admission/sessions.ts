/**
 * Agents' sessions: a seat stays with its session for a while after a turn.
 *
 * An agent sends a prompt, works for a second on the reply, and sends the same prompt again with more at its end. If more agents work
 * than there are seats, each turn overwrites the state of another agent's session, and all engines' time goes into prompts that were
 * computed before. It is a cliff: with 24 seats, 24 agents get 2.1 turns a second and 32 get 0.3 (bench/admission/sessions.bench.ts).
 *
 * **Recognised** is a session when its next prompt is ready: by the id that its client sends, or by the hashes of its chunks
 * (engine/protocol/cache-key.ts), of which the last two whole ones of the session's last prompt are in the next prompt, too. Both are
 * of one account alone. A second turn while one runs is a branch, so a session of its own.
 *
 * **Kept** is the seat of a turn that is done, for as long as an idle seat costs less than what it saves: one seat is idle, and all
 * seats of the replica wait while a lost prompt is computed again. So it is kept for (seats of the replica) x (what the loss of the
 * state costs), at most `keepMaxMs`, MEDIAN_PAUSES and MOST_PAUSES. That cost is measured (loss-cost.ts): with a prefix cache that restores
 * cheaply it is little, and no seat is kept; nor is one for an account of which few turns are continued, nor one of UNKEPT_SEATS for long.
 *
 * For all other requests a kept seat is taken: it counts as busy where free seats count (seats.ts), and is charged to its account
 * while requests wait (state.ts). A turn whose seat is kept gets it at once, before and beside the order of all others. To the
 * predictions a session is one long use of a seat, from its first turn until the seat is free again (`HoldTime`).
 *
 * **Taken** is a kept seat by an account that has the next turn and far fewer seats, so that none is starved by others' sessions: of
 * the account with the most seats for its weight the one that is idle longest.
 *
 * **Promised** is a seat to a newcomer that was refused for want of seats that are not kept, at the time at which it was told to return
 * (retry.ts), and to one of an account that is owed a seat (judge.ts). If it has found none by the end of its longest wait, it takes the
 * kept one that is idle longest: that of a session that has most likely ended, since no session says that it has. Where none is kept at
 * that moment, as where a prefix cache makes keeps short, it waits as long again, before all others, and takes any that is kept briefly.
 *
 * Bounds: MAX_SESSIONS are known, those not used for longest are forgotten first; MAX_NAMESAKES of one id. All is in memory: a restart
 * costs each session one computed prompt.
 */
import type { Clock } from '../lib/clock.js';
import type { Account } from './accounts.js';
import type { Forecast } from './forecast.js';
import { LossCost, low } from './loss-cost.js';
import type { QueuedRequest, Session } from './request.js';
import type { QueueState } from './state.js';
import type { KeepEnd, QueueRequest, ReleaseReason, SequenceClaims, SessionCounts, TurnStart } from './types.js';

/** Sessions that are known at most. */
const MAX_SESSIONS = 4096;

/** Sessions that are known at most by one id of a client: subagents have the id of their session. */
const MAX_NAMESAKES = 16;

/** So many seats are not kept for long: they serve single requests, and new sessions one by one. */
const UNKEPT_SEATS = 1;

/** Any seat may be kept for this time, ms: many clients send the next turn at once, and often several together. */
const BRIEF_KEEP_MS = 250;

/** A seat that would be kept for a shorter time than this is not kept, ms: no client sends its next turn so soon. */
const LEAST_KEEP_MS = 10;

/** Seats are kept for an account only if at least this share of its turns is continued. */
const CONTINUED_SHARE = 1 / 4;

/** The weight of the newest turn in that share. */
const SHARE_ALPHA = 0.1;

/** A seat is kept for at most so many times the account's long pauses: a session that is silent for longer has most likely ended. */
const MOST_PAUSES = 16;

/** It is kept for at most this share of the longest keep, or for so many medians of the account's pauses; a pause changes the median by a factor. */
const USUAL_SHARE = 0.4;
const MEDIAN_PAUSES = 5;
const MEDIAN_STEP = 1.1;

/** An account takes a kept seat of one that has this many times as many seats, for its weight, as it would have itself. */
const TAKE_RATIO = 2;

/** It also takes one of an account that is ahead of it by this many times the longest keep, in seat time: no session lasts for ever. */
const TAKE_LEAD = 5;

export interface SessionSettings {
  /** The longest time for which a seat is kept, ms; 0: none is. */
  readonly keepMaxMs: number;
  /** Whether the engines have a cache of overwritten states: then it is trusted until it is seen to cost more than kept seats. */
  readonly hasCache: boolean;
}

export class Sessions {
  readonly #clock: Clock;
  readonly #expired: () => void;
  readonly #state: QueueState;
  readonly #forecast: Forecast;
  /** Undefined if no session is recognised. */
  readonly #settings: SessionSettings | undefined;
  /** By id, the one that was used last at the end. */
  readonly #all = new Map<number, Session>();
  readonly #byChunk = new Map<number, Session[]>();
  readonly #byName = new Map<string, Session[]>();
  readonly #kept = new Set<Session>();
  readonly #cost: LossCost;
  /** Those of which a turn has ended and the time for a next one is not over, the first one to end first. */
  readonly #ended = new Set<Session>();
  #made = 0;
  /** When a seat was last kept. */
  #keptAt = -Infinity;
  /** The timer of the first keep that ends. */
  #timer: { readonly at: number; readonly cancel: () => void } | undefined;
  readonly #turns: Record<TurnStart, number> = { kept: 0, cold: 0, first: 0 };
  readonly #keeps: Record<KeepEnd, number> = { continued: 0, expired: 0, taken: 0, lost: 0 };

  /** `settings`: undefined where no session is to be recognised. `expired` is called when a keep has ended and requests wait. */
  constructor(
    state: QueueState,
    forecast: Forecast,
    settings: SessionSettings | undefined,
    { clock, expired }: { readonly clock: Clock; readonly expired: () => void },
  ) {
    this.#clock = clock;
    this.#expired = expired;
    this.#state = state;
    this.#forecast = forecast;
    this.#settings = settings;
    this.#cost = new LossCost(settings?.hasCache === true);
  }

  get counts(): SessionCounts {
    return { known: this.#all.size, turns: { ...this.#turns }, keeps: { ...this.#keeps } };
  }

  /** Whether seats are kept at present: one was, less than the longest keep ago. */
  get keepsSeats(): boolean {
    return this.#settings !== undefined && this.#state.now - this.#keptAt < this.#settings.keepMaxMs;
  }

  /**
   * Whether a newcomer may turn out to be the next turn of a session whose seat is kept. It is then admitted as if a seat was free, and
   * judged again if its prompt, once known, shows that it is no such turn.
   */
  mayHaveSeat({ session }: QueueRequest, account: Account): boolean {
    if (session === undefined || account.kept <= account.claiming) return false;
    if (session.name === undefined) return true;
    return this.#byName.get(session.name)?.some(({ phase }) => phase === 'kept') === true;
  }

  /** Finds the session of a request with a known prompt. True: its seat is kept and long enough, on the replica in `queued.replica`. */
  recognise(queued: QueuedRequest): boolean {
    const session = this.#sessionOf(queued);
    if (session === undefined) return false;
    queued.session = session;
    queued.continues = true;
    const account = this.#state.accountOf(queued);
    account.continuedShare += SHARE_ALPHA * (1 - account.continuedShare);
    const pauseMs = this.#state.now - (session.endedAt ?? 0);
    account.pauseMs = -low(-(account.pauseMs ?? pauseMs), -pauseMs);
    const median = account.medianPauseMs * (pauseMs > account.medianPauseMs ? MEDIAN_STEP : 1 / MEDIAN_STEP);
    account.medianPauseMs = Math.min(Math.max(median, LEAST_KEEP_MS), this.#settings?.keepMaxMs ?? 0);
    const replica = this.#state.replicas.all[session.replica];
    if (session.phase === 'kept' && (replica?.contextPerSeat ?? 0) >= queued.seatTokens) {
      queued.replica = session.replica;
      return true;
    }
    if (session.phase === 'kept') this.#release(session, 'lost');
    session.phase = 'waits';
    return false;
  }

  /** A request is about to be given a seat: that of its session, if it is kept, which is then free for it. Returns whether it was. */
  granted(queued: QueuedRequest): boolean {
    const { session } = queued;
    if (session?.phase === 'kept') {
      this.#turns.kept += 1;
      this.#release(session, 'continued');
      session.phase = 'runs';
      return true;
    }
    if (this.#settings === undefined || queued.request.session === undefined || queued.needs?.prefix === undefined)
      return false;
    if (queued.returns === 0) this.#turns[queued.continues ? 'cold' : 'first'] += 1;
    queued.session = session ?? this.#make(queued);
    queued.session.phase = 'runs';
    return false;
  }

  /**
   * What the engine of `replica` must know of kept seats when it gets a job, since a job may overwrite any sequence. `session`: the job is
   * one of its turns. Undefined if the job is no turn and no seat is kept on this replica.
   */
  claimsAt(replica: number, session?: Session): SequenceClaims | undefined {
    const kept: number[] = [];
    for (const other of this.#kept) if (other.replica === replica) kept.push(other.id);
    if (session !== undefined) return { session: session.id, kept };
    return kept.length > 0 ? { kept } : undefined;
  }

  /** The first token of a request came `ms` after its job was sent; `cachedTokens` of its prompt were not computed again. */
  prefilled({ needs, session, continues, hadSeat }: QueuedRequest, ms: number, cachedTokens: number): void {
    if (needs === undefined || session === undefined) return;
    const before = continues && !hadSeat ? session.promptTokens : undefined;
    this.#cost.observe({ ms, computed: needs.promptTokens - cachedTokens, cached: cachedTokens, before });
  }

  /** It ends without having run. */
  stopped({ session }: QueuedRequest): void {
    if (session === undefined) return;
    if (session.endedAt === undefined) this.#forget(session);
    else session.phase = 'idle';
  }

  /** It lost its engine before it began, and waits again. */
  waitsAgain({ session }: QueuedRequest): void {
    if (session !== undefined) session.phase = 'waits';
  }

  /** A lease ended and its seats were returned. Keeps the seat if that is worth it; returns whether it did. `mayKeep`: false in a drain. */
  ended(queued: QueuedRequest, reason: ReleaseReason, mayKeep: boolean): boolean {
    const { session, needs, replica } = queued;
    if (this.#settings === undefined || session === undefined || needs?.prefix === undefined) return false;
    const name = queued.request.session?.name ?? session.name;
    const isKnown = needs.prefix.length > 0 || name !== undefined;
    if (reason === 'failed' || reason === 'engine-lost' || !isKnown) {
      this.#forget(session);
      return false;
    }
    session.phase = 'idle';
    session.weight = queued.request.weight;
    session.replica = replica;
    session.promptTokens = needs.promptTokens;
    session.seatMs = queued.seatMs;
    this.#index(session, needs.prefix, name);
    session.endedAt = this.#state.now;
    this.#ended.delete(session);
    this.#ended.add(session);
    return reason === 'done' && mayKeep && this.#keep(session, this.#settings.keepMaxMs);
  }

  /** Starts the timer of the first keep that ends, while requests wait for a seat. Called last in each operation. O(kept). */
  arm(): void {
    let at = Infinity;
    if (this.#state.seatableRequests > 0) for (const { keptUntil } of this.#kept) at = Math.min(at, keptUntil);
    if (at === (this.#timer?.at ?? Infinity)) return;
    this.#timer?.cancel();
    const expire = (): void => {
      this.#timer = undefined;
      this.#expired();
    };
    const cancel = at === Infinity ? undefined : this.#clock.after(Math.ceil(at - this.#state.now), expire);
    this.#timer = cancel && { at, cancel };
  }

  /** Ends the keeps whose time is over, and counts the turns that were not continued. Called first in each operation. */
  advance(): void {
    if (this.#settings === undefined) return;
    const { now } = this.#state;
    for (const session of this.#kept) {
      if (session.keptUntil > now) continue;
      this.#release(session, 'expired');
      this.#countLast(session);
    }
    for (const session of this.#ended) {
      if ((session.endedAt ?? 0) > now - this.#settings.keepMaxMs) break;
      if (session.phase === 'idle') this.#countLast(session);
      this.#ended.delete(session);
    }
  }

  /**
   * The kept session whose seat the next request of `account` takes, by TAKE_RATIO and TAKE_LEAD; undefined if it takes none. `seatTokens`:
   * the tokens that the seat has to hold. O(kept).
   */
  takeable(account: Account, seatTokens: number, waiting = 0): Session | undefined {
    if (this.#settings === undefined) return undefined;
    const own = (TAKE_RATIO * (account.running + account.kept + waiting + 1)) / account.weight;
    const leadMs = TAKE_LEAD * this.#settings.keepMaxMs;
    let found: Session | undefined;
    let most = 0;
    for (const { session, other, has } of this.#keptFor(seatTokens)) {
      const isFarAhead = waiting === 0 && (other.virtualMs - account.virtualMs) * other.weight >= leadMs;
      if (other === account || (has < own && !isFarAhead)) continue;
      if (has < most || (has === most && (session.endedAt ?? 0) >= (found?.endedAt ?? Infinity))) continue;
      found = session;
      most = has;
    }
    return found;
  }

  /** Whether `account` would take a kept seat of another one, by TAKE_RATIO, if that had one more, and no prefix cache has what is lost then. */
  wouldTake(account: Account, { running, kept, weight }: Account): boolean {
    if (this.#settings?.hasCache !== false) return false;
    return (TAKE_RATIO * (account.running + account.kept + 1)) / account.weight <= (running + kept + 1) / weight;
  }

  /** Whether a request whose wait has ended was promised a seat beside kept ones. */
  isPromised({ hasReservation, phase }: QueuedRequest): boolean {
    return hasReservation && phase === 'ready' && this.keepsSeats;
  }

  /**
   * A promised request takes the kept seat that is idle longest, of an account with at least as many seats for its weight as its own. Returns
   * whether there is one; it is then free, and `queued.replica` is its replica. `mostMs`: for which it is kept at most.
   */
  takesPromised(queued: QueuedRequest, mostMs = Infinity): boolean {
    const account = this.#state.accountOf(queued);
    const own = (account.running + account.kept) / account.weight;
    let found: Session | undefined;
    for (const { session, has } of this.#keptFor(queued.seatTokens))
      if (has >= own && (session.endedAt ?? 0) < (found?.endedAt ?? Infinity))
        if (session.keptUntil - (session.endedAt ?? 0) <= mostMs) found = session;
    if (found !== undefined) this.taken(found, queued);
    return found !== undefined;
  }

  /** The same at any time of its second wait, of the seats that are kept for no longer than that: where a cache has what is lost then. */
  takesCheap(queued: QueuedRequest): boolean {
    const takes = this.#settings?.hasCache === true && this.isPromised(queued);
    return takes && this.takesPromised(queued, this.#forecast.maxWaitMs);
  }

  /** The sessions whose kept seats hold so many tokens, each with its account, and the seats that this has for its weight. */
  *#keptFor(
    seatTokens: number,
  ): Generator<{ readonly session: Session; readonly other: Account; readonly has: number }> {
    for (const session of this.#kept) {
      const other = this.#state.accountNamed(session.account);
      const { contextPerSeat = 0 } = this.#state.replicas.all[session.replica] ?? {};
      if (other === undefined || contextPerSeat < seatTokens) continue;
      yield { session, other, has: (other.running + other.kept) / other.weight };
    }
  }

  /** Another request takes its seat, which is then free. */
  taken(session: Session, by: QueuedRequest): void {
    this.#release(session, 'taken');
    by.replica = session.replica;
  }

  /** The engine process of a replica was lost or replaced, with all of its sequences; absent: no seat is kept any more. */
  lost(replica?: number): void {
    for (const session of this.#kept)
      if (replica === undefined || session.replica === replica) this.#release(session, 'lost');
  }

  /** When the first of an account's keeps ends; it has one. */
  firstEndOf({ name }: Account): number {
    return Math.min(...[...this.#kept].map(({ account, keptUntil }) => (account === name ? keptUntil : Infinity)));
  }

  /** The session that a request whose prompt is known continues. */
  #sessionOf({ request, needs }: QueuedRequest): Session | undefined {
    const { session: asked, account } = request;
    if (this.#settings === undefined || asked === undefined || needs?.prefix === undefined) return undefined;
    const { prefix, promptTokens } = needs;
    const isFree = (session: Session): boolean => {
      const isBetweenTurns = session.phase === 'idle' || session.phase === 'kept';
      return isBetweenTurns && session.account === account && session.promptTokens <= promptTokens;
    };
    for (let at = prefix.length; at > 0; at -= 1) {
      const hash = prefix[at - 1] ?? 0;
      const found = this.#byChunk.get(hash)?.filter((session) => {
        const isNamedOtherwise = asked.name !== undefined && session.name !== undefined && asked.name !== session.name;
        return (
          isFree(session) && !isNamedOtherwise && session.chunks.some((chunk) => chunk.at === at && chunk.hash === hash)
        );
      });
      const [first] = found ?? [];
      if (first !== undefined) return found?.find(({ phase }) => phase === 'kept') ?? first;
    }
    // Its prompt was rewritten. If an id is of several sessions, it does not tell which.
    const named = asked.name === undefined ? undefined : this.#byName.get(asked.name);
    const same = named?.filter(({ firstHash }) => firstHash === prefix[0]);
    const [only] = same ?? [];
    const isOne = only !== undefined && same?.length === 1 && only.account === account;
    return isOne && (only.phase === 'idle' || only.phase === 'kept') ? only : undefined;
  }

  #make(queued: QueuedRequest): Session {
    const session: Session = {
      id: (this.#made += 1),
      account: queued.request.account,
      weight: queued.request.weight,
      phase: 'runs',
      replica: queued.replica,
      promptTokens: 0,
      chunks: [],
      name: undefined,
      firstHash: undefined,
      endedAt: undefined,
      keptUntil: 0,
      seatMs: 0,
    };
    this.#all.set(session.id, session);
    if (this.#all.size <= MAX_SESSIONS) return session;
    // Those that are not idle are no more than the places and seats of the queue.
    for (const oldest of this.#all.values()) {
      if (oldest.phase !== 'idle') continue;
      this.#forget(oldest);
      break;
    }
    return session;
  }

  /** A session of which a turn has ended is found by this prompt and this name from now on. */
  #index(session: Session, prefix: Uint32Array, name: string | undefined): void {
    this.#unindex(session);
    const last = prefix.length;
    session.chunks = [last, last - 1].filter((at) => at > 0).map((at) => ({ at, hash: prefix[at - 1] ?? 0 }));
    session.firstHash = prefix[0];
    session.name = name;
    for (const { hash } of session.chunks) addTo(this.#byChunk, hash, session);
    if (session.name !== undefined) addTo(this.#byName, session.name, session, MAX_NAMESAKES);
    // To the end: the first is the one that was not used for longest.
    this.#all.delete(session.id);
    this.#all.set(session.id, session);
  }

  #unindex(session: Session): void {
    for (const { hash } of session.chunks) removeFrom(this.#byChunk, hash, session);
    if (session.name !== undefined) removeFrom(this.#byName, session.name, session);
    session.chunks = [];
  }

  #forget(session: Session): void {
    this.#unindex(session);
    this.#all.delete(session.id);
    session.phase = 'idle';
  }

  /** Keeps the seat of a session whose turn is done, if that is worth it. */
  #keep(session: Session, keepMaxMs: number): boolean {
    const { replicas, seats, now } = this.#state;
    const account = this.#state.accountNamed(session.account);
    if (account === undefined || account.continuedShare < CONTINUED_SHARE) return false;
    if (replicas.freeSeatsAt(session.replica) === 0) return false;
    const { pauseMs = Infinity, medianPauseMs } = account;
    const silentMs = Math.max(BRIEF_KEEP_MS, replicas.kept + UNKEPT_SEATS < seats ? MOST_PAUSES * pauseMs : 0);
    const usualMs = Math.max(USUAL_SHARE * keepMaxMs, MEDIAN_PAUSES * medianPauseMs);
    const lossMs = this.#cost.msOf(session.promptTokens) * (replicas.all[session.replica]?.seats ?? 0);
    const ms = Math.min(keepMaxMs, usualMs, silentMs, lossMs);
    if (ms < LEAST_KEEP_MS || seats === 1) return false;
    session.phase = 'kept';
    session.keptUntil = now + ms;
    this.#keptAt = now;
    this.#kept.add(session);
    this.#state.keep(session, 1);
    return true;
  }

  /** Ends a keep: the seat is free. */
  #release(session: Session, how: KeepEnd): void {
    this.#kept.delete(session);
    session.phase = 'idle';
    this.#keeps[how] += 1;
    this.#state.keep(session, -1);
    const usedMs = session.seatMs + this.#state.now - (session.endedAt ?? 0);
    const account = this.#state.accountNamed(session.account);
    if (account !== undefined)
      this.#forecast.seatUsed(account, account.classFor(session.weight), usedMs, how !== 'continued');
  }

  /** None came in time. Counted once for each end of a turn. */
  #countLast(session: Session): void {
    if (!this.#ended.delete(session)) return;
    const account = this.#state.accountNamed(session.account);
    if (account !== undefined) account.continuedShare *= 1 - SHARE_ALPHA;
  }
}

function addTo<K>(index: Map<K, Session[]>, key: K, session: Session, most = Infinity): void {
  index.set(key, [...(index.get(key) ?? []), session].slice(-most));
}

function removeFrom<K>(index: Map<K, Session[]>, key: K, session: Session): void {
  const others = index.get(key)?.filter((other) => other !== session) ?? [];
  if (others.length > 0) index.set(key, others);
  else index.delete(key);
}
