/**
 * Serves a request of any route that uses a model, from its first check to its last byte. A route (route.ts) says what is
 * checked, what the engine is to do, and how the answer is written; the order is the same for all:
 *
 * | step   | what happens                                                               | what ends it early                        |
 * | ------ | -------------------------------------------------------------------------- | ----------------------------------------- |
 * | check  | preflight.ts: key, limits, body, contract, model, Idempotency-Key          | a check fails                             |
 * | enter  | takes a place in the model's queue, which gets no seat before `wait`       | the queue refuses                         |
 * | prompt | prompt host: tokens; route: the job; tokens and credit are reserved       | a check fails, the place is lost          |
 * | wait   | the place may get a seat                                                   | the queue refuses, the caller disconnects |
 * | run    | the engine has the job, on the lease's seats                               | see {@link lastEnd}                       |
 * | answer | the usage is closed, then the end of the answer is written                 |                                           |
 *
 * From `run` a request goes back to `wait` when its engine was lost before it began the job, when its lent seat was recalled, or when a
 * part of its work is done and another one follows; and to `prompt`, with its seat, when the replica has another tokenizer or template.
 * Each step returns its result or why the request ends. Only `answer` ends the request's context and usage, for every end of every
 * step, and only `#runOn` returns seats. The context has the request's phase for metrics and prices: `waiting` until the engine began
 * the job, `prefilling`, `decoding` from the first token on.
 */
import type { Lease, ReleaseReason, Ticket, TicketOutcome } from '../admission/types.js';
import type { Params } from '../contracts/requests.js';
import type { ContractError } from '../domain/errors.js';
import { CLASS_WEIGHTS, TIER_CLASSES } from '../domain/service-class.js';
import type {
  EmbedJob,
  EngineJob,
  GenerateJob,
  JobFault,
  JobHandle,
  ProcessHold,
  ScoreJob,
} from '../engine-client/engine.js';
import type { Exchange } from '../http/exchange.js';
import { AbortHandle } from '../lib/abort.js';
import type { Tokenized } from '../prompts/prompt-maker.js';
import type { BatchItem } from './batch-item.js';
import type { ImageFailure, JobImages } from './images.js';
import { canUseLentSeat, preflight, promptFailed, sessionNameOf, tierFor, type PreparedRequest } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, outcomeOf, RequestContext, type Stop } from './request-context.js';
import type { NextPart, Plan, RunEvents, Tokens, Work, WorkRoute } from './route.js';
import type { Services } from './services.js';
import { UsageSession } from './usage-session.js';

/**
 * How often a prompt is made again: while weights are replaced, a request may meet a replica of the other version, and that may change
 * before it has the new prompt.
 */
const MAX_REMAKES = 4;

type End = { readonly kind: 'done' } | Stop;

type AttemptEnd =
  | { readonly kind: 'done' }
  /**
   * The caller disconnected, or the deadline passed. `engineStopped`: settles when the engine no longer computes the job; absent: it has
   * stopped.
   */
  | { readonly kind: 'cancelled' | 'deadline'; readonly engineStopped?: Promise<void> }
  /** Its lent seat was needed for another request. */
  | { readonly kind: 'recalled' }
  /** The job was not started, since its usage cannot be recorded. */
  | { readonly kind: 'unrecorded'; readonly error: ContractError }
  | ImageFailure
  | JobFault;

/** Serves one request of a route that uses a model. `item`: it is a line of a batch. */
export async function run<P extends Params>(
  route: WorkRoute<P>,
  exchange: Exchange,
  services: Services,
  item?: BatchItem,
): Promise<void> {
  const context = new RequestContext(exchange, route, services, item);
  try {
    const prepared = await preflight(context, route, services);
    const begun = prepared.kind === 'prepared' ? begin(context, route, prepared, services) : prepared;
    if (begun.kind === 'begun') await answer(context, await new Run(begun).toEnd(), begun);
    else await answer(context, begun);
  } finally {
    context.close();
  }
}

/** A request that has a place in its model's queue. */
interface Begun {
  readonly kind: 'begun';
  readonly context: RequestContext;
  readonly services: Services;
  readonly prepared: PreparedRequest<Params>;
  readonly promptKind: Tokens['kind'];
  readonly usage: UsageSession;
  work: Work;
  /** Makes `work` anew, as if nothing had run yet. */
  readonly again: () => Work | Stop;
  readonly ticket: Ticket;
}

/** Takes a place in the queue before anything is tokenized. The place ends when the context closes. */
function begin<P extends Params>(
  context: RequestContext,
  route: WorkRoute<P>,
  prepared: PreparedRequest<P>,
  services: Services,
): Begun | Stop {
  const { caller, model, params, body } = prepared;
  const { account } = caller;
  // A line of a batch has a class and a price of its own.
  const asked = 'tier' in params && context.item === undefined ? params : {};
  const tier = tierFor(asked, caller, model, services);
  if ('tier' in params) context.tier = tier?.name ?? 'default';
  const weight = tier ? CLASS_WEIGHTS[TIER_CLASSES[tier.name]] : caller.weight;
  context.weight = weight;
  const { id: claim } = prepared.claim;
  const billed = { route: route.entitlement, ...(claim !== undefined && { claim }) };
  const usage = new UsageSession(services, context, caller, model, billed, tier);
  const again = (): Work | Stop => route.begin({ context, params, account, weight, model, usage, services });
  const work = again();
  if (work.kind !== 'work') return work;
  const streams = 'stream' in params && params.stream;
  const ticket = model.queue.enter({
    account,
    ...('user' in params && { user: params.user }),
    weight,
    ownWeight: caller.weight,
    bytes: body.received.length,
    ...(context.deadlineAt !== undefined && { deadlineAt: context.deadlineAt }),
    ...(context.wantedUntil !== undefined && { wantedUntil: context.wantedUntil }),
    urgent: context.urgent,
    seatsWanted: work.seatsWanted,
    awaits: streams ? 'first-token' : 'end',
    bodyDigest: body.digest,
    // Work in parts gives its seat back soon in any case.
    lent: work.next === undefined && canUseLentSeat({ weight }, streams),
    // A chat of one reply.
    ...('n' in params &&
      params.n === 1 && { session: { name: sessionNameOf(context.exchange.head, params, account) } }),
  });
  if ('kind' in ticket) return ticket;
  context.place = () => ticket.place();
  // For as long as the request lives, since a request whose engine was lost waits a second time. While it has a seat, `cancel`
  // only records when its caller left.
  const { gone } = context.exchange;
  const leave = (): void => ticket.cancel('disconnected');
  if (gone.aborted) leave();
  else gone.addEventListener('abort', leave);
  context.onClose(() => {
    // All lines of a batch have one signal.
    gone.removeEventListener('abort', leave);
    ticket.cancel();
  });
  return { kind: 'begun', context, services, prepared, promptKind: route.kind, usage, work, again, ticket };
}

/** Answers a request and records its usage, for every end that it can have. `begun`: absent if it took no place in the queue. */
async function answer(context: RequestContext, end: End, begun?: Begun): Promise<void> {
  const { promptTokens: prompt, cachedTokens: cached, completionTokens: completion } = context;
  const { draftedTokens: drafted, acceptedTokens: accepted } = context;
  // Requests that never started consume no tokens.
  if (context.phase !== 'waiting') context.meter?.used({ prompt, cached, completion, drafted, accepted });
  if (end.kind !== 'done') {
    // What it reserved is released before the answer, whose headers tell what is left.
    // A line of a batch that is stopped runs again.
    const closed = begun?.usage.close(end.kind === 'cancelled' && context.item ? 'refused' : outcomeOf(end));
    context.stop(end);
    await closed;
  } else if (begun && context.item) {
    await keepAnswer(context.item, begun);
  } else if (begun && (await begun.usage.closeAnswered())) {
    begun.work.answer();
    begun.prepared.claim.complete();
  }
}

/** The answer to a line of a batch is durable before its usage is closed, so that what is billed was delivered. */
async function keepAnswer(item: BatchItem, { work, usage }: Begun): Promise<void> {
  const { attempt, cutAt } = usage;
  if (cutAt !== undefined) {
    item.cut(cutAt);
    await usage.close('refused');
    return;
  }
  work.answer();
  if (await item.keep(attempt)) await usage.closeKept();
  else await usage.close('failed');
}

/** A request from its place in the queue to its end. It owns the ticket, the lease, the job and its images. */
class Run {
  readonly #begun: Begun;
  #plan: Plan | undefined;
  #images: JobImages | undefined;
  /** Of the process that began its last part: another one can be replaced without a wait for the rest. */
  #hold: ProcessHold | undefined;
  /** From a lent seat: its reply may go on after what it had. */
  #wasRecalled = false;

  constructor(begun: Begun) {
    this.#begun = begun;
  }

  async toEnd(): Promise<End> {
    const { ticket } = this.#begun;
    const made = await this.#prompt();
    if (made.kind !== 'planned') return made;
    ticket.ready(made.needs);
    const lease = await this.#seat(ticket.outcome);
    return 'kind' in lease ? lease : this.#runOn(lease);
  }

  /** Makes the prompt and plans the job. Ends early when the place is lost. */
  async #prompt(): Promise<Plan | Stop> {
    const { ticket, prepared } = this.#begun;
    // A place can be lost before it is ready: its deadline, a drain, a caller that disconnected.
    const lost = new AbortHandle();
    let preparing = true;
    void ticket.outcome.then(() => preparing && lost.abort());
    const tokens = await prepared.body.tokenize(lost);
    preparing = false;
    if (tokens.kind !== 'aborted') return this.#planOf(tokens, prepared.model.engine.contexts);
    const lease = await this.#seat(ticket.outcome);
    if ('kind' in lease) return lease;
    throw new Error('a place was given a seat before it was ready');
  }

  /**
   * Makes the prompt with the tokenizer and template of the replica whose seat it has; the seat stays taken meanwhile. Ends early
   * when the caller disconnects or the deadline passes, and at once if the body's room was needed for other bodies.
   */
  async #promptAgain(replica: number): Promise<Plan | Stop> {
    const { context, prepared } = this.#begun;
    const { engine, id } = prepared.model;
    const facts = engine.replicas[replica]?.facts;
    const promptVersion = facts?.promptVersion;
    const wanted = promptVersion === undefined ? undefined : { model: id, promptVersion };
    const lost = new AbortHandle();
    const clear = context.onInterruption(() => lost.abort());
    const tokens = await prepared.body.tokenizeAgain(wanted, lost);
    clear();
    if (tokens === undefined) return failed(refusals.noRoom());
    if (tokens.kind !== 'aborted') return this.#planOf(tokens, facts ? [facts.contextPerSeat] : engine.contexts);
    return context.exchange.gone.aborted ? { kind: 'cancelled' } : failed(refusals.timedOut());
  }

  /** Plans the job of a prompt, and reserves what it may use. */
  async #planOf(
    tokens: Exclude<Tokenized, { readonly kind: 'aborted' }>,
    contexts: readonly number[],
  ): Promise<Plan | Stop> {
    const { context, work, usage, promptKind } = this.#begun;
    if (tokens.kind === 'failed') return promptFailed(context, tokens);
    if (tokens.kind === 'refused') return failed(tokens.error);
    if (tokens.kind !== promptKind) return promptFailed(context, { reason: 'made for another route' });
    const plan = await work.plan(tokens, contexts);
    if (plan.kind !== 'planned') return plan;
    const reserved = usage.reserve(context.promptTokens, plan.replies);
    const unpaid = reserved instanceof Promise ? await reserved : reserved;
    if (unpaid) return failed(unpaid);
    this.#images?.close();
    this.#images = plan.images;
    return (this.#plan = plan);
  }

  /** Waits for a seat. Returns its lease, or why there is none. */
  async #seat(waiting: Promise<TicketOutcome>): Promise<Lease | Stop> {
    const { context } = this.#begun;
    context.times.waits();
    const outcome = await waiting;
    if (outcome.kind !== 'seated') return outcome;
    context.seated(outcome.lease);
    return outcome.lease;
  }

  /**
   * Runs the job on its seats, which it returns whatever happens. A job that the engine lost before it began goes back to the head of the
   * queue, for another replica if there is one; the queue bounds how often.
   */
  async #runOn(granted: Lease): Promise<End> {
    const { times } = this.#begun.context;
    let lease = granted;
    let reason: ReleaseReason = 'failed';
    let engineStopped: Promise<void> | undefined;
    let remakes = 0;
    let parts = 0;
    try {
      for (;;) {
        if (parts === 0) times.handedOver();
        const attempt = await this.#attempt(lease);
        const lost = attempt.kind === 'lost' && !attempt.started;
        if (lost || attempt.kind === 'done') times.ran();
        if (attempt.kind === 'done') {
          const next = this.#begun.work.next?.();
          if (next?.kind === 'next') {
            const seated = await this.#nextTurn(lease, next);
            if ('kind' in seated) return seated;
            lease = seated;
            parts += 1;
            continue;
          }
          if (next) return next;
        }
        if (lost) {
          const again = await this.#seat(lease.giveBack());
          if ('kind' in again) return again;
          lease = again;
        } else if (attempt.kind === 'recalled') {
          const seated = await this.#afterRecall(lease);
          if ('kind' in seated) return seated;
          lease = seated;
        } else if (attempt.kind === 'stale' && parts > 0) {
          return failed(refusals.weightsChanged(), 'failed');
        } else if (attempt.kind === 'stale' && remakes < MAX_REMAKES) {
          remakes += 1;
          const made = await this.#promptAgain(lease.replica);
          if (made.kind === 'planned') continue;
          if (made.kind === 'cancelled') reason = 'cancelled';
          else if (outcomeOf(made) === 'timeout') reason = 'deadline';
          return made;
        } else {
          const last = lastEnd(attempt, this.#begun.services.draining());
          if (attempt.kind === 'cancelled' || attempt.kind === 'deadline') ({ engineStopped } = attempt);
          ({ reason } = last);
          return last.end;
        }
      }
    } finally {
      this.#images?.close();
      this.#forgetJob();
      this.#holdOnly(undefined);
      // The caller's answer does not wait for the engine.
      if (engineStopped) void engineStopped.then(() => lease.release(reason));
      else lease.release(reason);
    }
  }

  /** Waits for a seat for the next part of the work. Returns its lease, or why there is none. */
  async #nextTurn(lease: Lease, { job, after }: NextPart): Promise<Lease | Stop> {
    const { context } = this.#begun;
    const outcome = await lease.nextTurn(after);
    // A part of the work was done, so that it is not a refusal.
    if (outcome.kind === 'refused' && outcome.reason !== 'deadline')
      return failed(refusals.engineFault({ kind: 'lost', started: true }), 'failed');
    if (outcome.kind !== 'seated') return outcome;
    if (this.#plan) this.#plan.job = job;
    context.seatedAgain(outcome.lease);
    return outcome.lease;
  }

  /** It is not sent again. Of a line of a batch nothing stays in memory. */
  #forgetJob(): void {
    if (this.#begun.context.item) overwriteIds(this.#plan?.job);
    if (this.#plan) this.#plan.job = undefined;
  }

  #holdOnly(hold: ProcessHold | undefined): void {
    this.#hold?.release();
    this.#hold = hold;
  }

  /** Its attempt on a lent seat costs nothing and is begun again on the next seat. */
  async #afterRecall(lease: Lease): Promise<Lease | Stop> {
    const { context, usage, again } = this.#begun;
    usage.recalled();
    context.recalled();
    this.#wasRecalled = true;
    const work = again();
    if (work.kind !== 'work') return work;
    this.#begun.work = work;
    return this.#seat(lease.giveBack());
  }

  /** One attempt: until the job ends, its caller disconnects, its deadline passes or its seat is recalled, whichever comes first. */
  #attempt(lease: Lease): Promise<AttemptEnd> {
    const { context, prepared, usage, work } = this.#begun;
    if (context.exchange.gone.aborted) return Promise.resolve({ kind: 'cancelled' });
    if (lease.seats() === 0) return Promise.resolve({ kind: 'recalled' });
    return new Promise((resolve) => {
      let job: JobHandle | undefined;
      let ended = false;
      const end = (how: AttemptEnd): void => {
        ended = true;
        clear();
        resolve(how);
      };
      // Before the start, which may end the job at once.
      const clear = context.onInterruption((kind) => {
        const engineStopped = job?.cancel();
        end({ kind, ...(engineStopped && { engineStopped }) });
      });
      try {
        const error = usage.open();
        if (error) {
          end({ kind: 'unrecorded', error });
          return;
        }
        const images = this.#images;
        const supply = async (image: number): Promise<void> => {
          const made = await images?.embeddings(image);
          if (ended || !made) return;
          if (made instanceof Float32Array) {
            job?.supply?.(image, made);
            return;
          }
          void job?.cancel();
          end(made);
        };
        const started = this.#start(lease, {
          started: (cachedTokens, weightVersion) => {
            // The job of a lent seat may be sent again.
            if (!lease.lent) {
              this.#forgetJob();
              // An engine has begun the prompt, so that it is not made again. Its images are still needed.
              prepared.body.received.freeBytes();
            }
            if (work.next !== undefined) this.#holdOnly(job?.hold?.());
            context.started(cachedTokens);
            work.started?.(weightVersion);
          },
          cached: (tokens) => context.cached(tokens),
          seatFreed: () => lease.freeSeat(),
          done: () => end({ kind: 'done' }),
          failed: end,
          needsTokens: (tokens) => {
            const limit = usage.extend(tokens);
            if (limit instanceof Promise) void limit.then((told) => job?.limit?.(told));
            else job?.limit?.(limit);
          },
          ...(images && { needsImage: (image) => void supply(image) }),
        });
        job = started;
        lease.whenWanted(() => started.reduceSeats());
        lease.whenRecalled(() => {
          if (ended) return undefined;
          end({ kind: 'recalled' });
          return started.cancel();
        });
      } catch (fault) {
        clear();
        throw fault;
      }
    });
  }

  /** Sends the job to the replica of its lease, which grows to the seats that the job can use and that are free. */
  #start(lease: Lease, events: RunEvents): JobHandle {
    const { work, prepared, usage } = this.#begun;
    const { engine } = prepared.model;
    const { job, needs } = this.#plan ?? {};
    if (!job || !needs) throw new Error('a job that an engine had begun was sent again');
    while (lease.seats() < work.seatsWanted && lease.takeSeat());
    const { replica } = lease;
    const sent = {
      seats: lease.seats(),
      ...job,
      ...(usage.limit !== undefined && { limit: usage.limit }),
      ...(lease.claims && { claims: lease.claims }),
      ...((lease.lent || this.#wasRecalled) && { background: lease.lent }),
    };
    const { results } = work;
    const asked: EngineJob =
      results.kind === 'generate'
        ? { kind: results.kind, job: sent as GenerateJob, receiver: Object.assign({}, results, events) }
        : results.kind === 'score'
          ? { kind: results.kind, job: sent as ScoreJob, receiver: Object.assign({}, results, events) }
          : { kind: results.kind, job: sent as EmbedJob, receiver: Object.assign({}, results, events) };
    return engine.run(asked, replica, needs.prefix, this.#hold);
  }
}

/** Of all prompts in a job. */
function overwriteIds(value: unknown): void {
  if (value instanceof Uint32Array) value.fill(0);
  else if (typeof value === 'object' && value !== null) Object.values(value).forEach(overwriteIds);
}

/** What follows of a last attempt: how the request ends, and the reason with which its seats are returned. */
function lastEnd(
  attempt: Exclude<AttemptEnd, { readonly kind: 'recalled' }>,
  draining: boolean,
): { readonly end: End; readonly reason: ReleaseReason } {
  switch (attempt.kind) {
    case 'done':
      return { end: attempt, reason: 'done' };
    case 'cancelled':
      return { end: { kind: 'cancelled' }, reason: 'cancelled' };
    case 'deadline':
      return { end: failed(refusals.timedOut()), reason: 'deadline' };
    case 'unrecorded':
      return { end: failed(attempt.error), reason: 'failed' };
    case 'image-failed':
      return { end: failed(attempt.error, 'failed'), reason: 'failed' };
    default: {
      // The drain's time is over, so the sidecar itself has ended the engine.
      const error = draining ? refusals.shutDownError() : refusals.engineFault(attempt);
      return { end: failed(error, 'failed'), reason: attempt.kind === 'lost' ? 'engine-lost' : 'failed' };
    }
  }
}
