import type { Lease, Ticket, SeatNeeds } from '../admission/seat-queue.js';
import type { Params } from '../contracts/requests.js';
import { AbortHandle } from '../lib/abort.js';
import type { NoResult, Refusal, Tokenized } from '../prompts/prompt-maker.js';
import { failed, promptFailed, type PreparedRequest } from './preflight.js';
import * as refusals from './refusals.js';
import type { RequestContext, Stop } from './request-context.js';

/** A prompt in tokens. */
export type Tokens = Exclude<Tokenized, Refusal | NoResult>;

function asTokens<K extends Tokens['kind']>(
  context: RequestContext,
  tokens: Exclude<Tokenized, { readonly kind: 'aborted' }>,
  kind: K,
): Extract<Tokens, { readonly kind: K }> | Stop {
  switch (tokens.kind) {
    case 'failed':
      return promptFailed(context, tokens);
    case 'refused':
      return failed(tokens.error);
    default:
      return tokens.kind === kind
        ? (tokens as Extract<Tokens, { readonly kind: K }>)
        : promptFailed(context, { reason: 'made for another route' });
  }
}

/**
 * A request's place in its model's queue, from the moment it is taken to its seat. The place is taken before anything is
 * tokenized, and the queue cannot give it a seat until `seat` is called after the last check. It is cancelled when the
 * context closes.
 */
export class SeatWait {
  readonly kind = 'waiting';
  readonly #context: RequestContext;
  readonly #ticket: Ticket;

  private constructor(context: RequestContext, ticket: Ticket) {
    this.#context = context;
    this.#ticket = ticket;
    // For as long as the request lives, since a request whose engine was lost waits a second time. While it has a seat, `cancel`
    // only records when its caller left.
    const { gone } = context.exchange;
    if (gone.aborted) ticket.cancel('disconnected');
    else gone.addEventListener('abort', () => ticket.cancel('disconnected'));
    context.onClose(() => ticket.cancel());
  }

  /** Takes the place, or returns the queue's refusal. `seatsWanted`: seats that the request could use at once. */
  static enter<P extends Params>(
    context: RequestContext,
    { caller, model, params, body }: PreparedRequest<P>,
    seatsWanted: number,
  ): SeatWait | Stop {
    const ticket = model.queue.enter({
      account: caller.account,
      ...('user' in params && { user: params.user }),
      weight: caller.weight,
      bytes: body.length,
      ...(context.deadlineAt !== undefined && { deadlineAt: context.deadlineAt }),
      ...(context.wantedUntil !== undefined && { wantedUntil: context.wantedUntil }),
      urgent: context.urgent,
      seatsWanted,
      awaits: 'stream' in params && params.stream ? 'first-token' : 'end',
      bodyDigest: body.digest,
    });
    return 'kind' in ticket ? ticket : new SeatWait(context, ticket);
  }

  /**
   * Renders and tokenizes the prompt. `kind`: that of the request's route. Ends early when the place is lost.
   */
  async tokenize<P extends Params, K extends Tokens['kind']>(
    { body }: PreparedRequest<P>,
    kind: K,
  ): Promise<Extract<Tokens, { readonly kind: K }> | Stop> {
    // A place can be lost before it is ready: its deadline, a drain, a caller that disconnected.
    const lost = new AbortHandle();
    let preparing = true;
    void this.#ticket.outcome.then(() => preparing && lost.abort());
    const tokens = await body.tokenize(lost);
    preparing = false;
    return tokens.kind === 'aborted' ? this.#stopped() : asTokens(this.#context, tokens, kind);
  }

  /**
   * Tokenizes the prompt again with the tokenizer and template of the replica whose seat it has; the seat stays taken meanwhile.
   * Ends early when the caller disconnects or the deadline passes, and at once if the body's room was needed for other bodies.
   */
  async tokenizeAgain<P extends Params, K extends Tokens['kind']>(
    { body, model }: PreparedRequest<P>,
    kind: K,
    promptVersion: string | undefined,
  ): Promise<Extract<Tokens, { readonly kind: K }> | Stop> {
    const { gone } = this.#context.exchange;
    const lost = new AbortHandle();
    const end = (): void => lost.abort();
    const cancelTimer = this.#context.atDeadline(end);
    if (gone.aborted) end();
    else gone.addEventListener('abort', end);
    const wanted = promptVersion === undefined ? undefined : { model: model.id, promptVersion };
    const tokens = await body.tokenizeAgain(wanted, lost);
    gone.removeEventListener('abort', end);
    cancelTimer();
    if (tokens === undefined) return failed(refusals.noRoom());
    if (tokens.kind !== 'aborted') return asTokens(this.#context, tokens, kind);
    return gone.aborted ? { kind: 'cancelled' } : failed(refusals.timedOut());
  }

  /** The last check passed: waits for a seat. The lease is the route's to end. */
  seat(needs: SeatNeeds): Promise<Lease | Stop> {
    this.#ticket.ready(needs);
    return this.#context.awaitSeat(this.#ticket.outcome);
  }

  /** Why the place was lost. */
  async #stopped(): Promise<Stop> {
    const lease = await this.#context.awaitSeat(this.#ticket.outcome);
    if ('kind' in lease) return lease;
    throw new Error('a place was given a seat before it was ready');
  }
}
