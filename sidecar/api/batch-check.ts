/** Checks the lines of a batch before any of them runs: each by the contract of its route, as the route's own requests are. */
import type { Caller } from '../access/identity.js';
import type { BatchProblem } from '../batch/batch-store.js';
import { LINE_BYTES, type FileLine } from '../batch/lines.js';
import type { BatchEndpoint } from '../contracts/batch-schemas.js';
import { parseBatchLine } from '../contracts/batches.js';
import type { Params } from '../contracts/requests.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import type { Signal } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';
import { unentitled } from './preflight.js';
import * as refusals from './refusals.js';
import type { WorkRoute } from './route.js';
import type { Services } from './services.js';

/** Refusals for lack of room or readiness, which say nothing about the line. */
export const NO_ROOM: ReadonlySet<ErrorCode> = new Set([
  'capacity_exceeded',
  'cold',
  'draining',
  'spool_unhealthy',
  'credit_gate_unavailable',
]);

/** The wait after a refusal that names none, ms. */
const RETRY_MS = 1000;

/** The longest wait, ms: what is waited for may come earlier. */
const MOST_PAUSE_MS = 60_000;

/** Resolves with true after a time, and with false once `signal` is aborted. */
export function pause(clock: Clock, ms: number, signal: Signal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const stop = (): void => {
      cancel();
      resolve(false);
    };
    const cancel = clock.after(Math.min(ms, MOST_PAUSE_MS), () => {
      signal.removeEventListener('abort', stop);
      resolve(true);
    });
    signal.addEventListener('abort', stop);
  });
}

type LineProblem = Omit<BatchProblem, 'line' | 'param'> & { readonly param?: string | null };

/** The lines of one batch, in their order. */
export class LineCheck {
  readonly #endpoint: BatchEndpoint;
  readonly #route: WorkRoute;
  readonly #caller: Caller;
  readonly #services: Services;
  readonly #signal: Signal;
  /** Each `custom_id` so far. */
  readonly #names = new Set<string>();

  /** `signal`: the batch stops, and its lines need no check. */
  constructor(endpoint: BatchEndpoint, route: WorkRoute, caller: Caller, services: Services, signal: Signal) {
    this.#endpoint = endpoint;
    this.#route = route;
    this.#caller = caller;
    this.#services = services;
    this.#signal = signal;
  }

  /** Undefined if the line may run. */
  async problemOf({ bytes }: FileLine): Promise<LineProblem | undefined> {
    const code = 'invalid_json_line';
    if (bytes === undefined) return { code, message: `The line is longer than ${LINE_BYTES} bytes.` };
    const parsed = parseBatchLine(bytes);
    if (parsed.kind === 'invalid') return { code, message: parsed.error.message, param: parsed.error.param };
    const { customId, url, body } = parsed.request;
    if (url !== this.#endpoint)
      return { code: 'invalid_url', message: 'url must be the endpoint of the batch', param: 'url' };
    if (this.#names.size === this.#names.add(customId).size) {
      const message = 'custom_id must differ from those of all other lines';
      return { code: 'duplicate_custom_id', message, param: 'custom_id' };
    }
    const error = await this.#bodyError(body);
    if (error === undefined) return undefined;
    return { code: error.code, message: error.message, param: error.param === null ? 'body' : `body.${error.param}` };
  }

  /** What the line's route says of its body. */
  async #bodyError(body: Uint8Array): Promise<ContractError | undefined> {
    const { limits, prompts, clock } = this.#services;
    const mostBytes = this.#route.maxBytes(limits);
    if (body.length > mostBytes) return refusals.tooLarge(mostBytes);
    const owner = { account: this.#caller.account, weight: CLASS_WEIGHTS.batch };
    for (;;) {
      const open = prompts.open(this.#route.form(this.#services), { bytes: body, length: body.length }, owner);
      const checked = await open.check(this.#signal);
      open.close();
      if (checked.kind === 'aborted') return undefined;
      if (checked.kind === 'failed') return refusals.internal();
      if (checked.kind === 'checked') return this.#paramsError(checked.params);
      if (!NO_ROOM.has(checked.error.code)) return checked.error;
      if (!(await pause(clock, checked.error.retryAfterMs ?? RETRY_MS, this.#signal))) return undefined;
    }
  }

  #paramsError(params: Params): ContractError | undefined {
    const model = this.#services.models.get(params.model);
    const denied = unentitled(this.#caller, this.#route, model);
    if (denied ?? !model) return denied ?? refusals.notEntitled();
    if (model.kind !== this.#route.kind) return refusals.wrongEndpoint(model.kind);
    const streams = 'stream' in params && params.stream;
    return streams ? refusals.badQuery('stream', 'must be false or absent in a batch') : undefined;
  }
}
