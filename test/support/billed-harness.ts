import { CreditLedger } from '../../sidecar/access/credit.js';
import type { Caller } from '../../sidecar/access/identity.js';
import { RequestLimits } from '../../sidecar/access/limits.js';
import { QuotaLedger } from '../../sidecar/access/quotas.js';
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Params } from '../../sidecar/contracts/requests.js';
import { errorBody } from '../../sidecar/domain/errors.js';
import { CHAT } from '../../sidecar/api/chat.js';
import { DECISIONS } from '../../sidecar/api/decisions.js';
import { run } from '../../sidecar/api/run.js';
import type { HostedModel, Services } from '../../sidecar/api/services.js';
import { Body } from '../../sidecar/http/body.js';
import type { Exchange } from '../../sidecar/http/exchange.js';
import type { ServiceTier } from '../../sidecar/domain/service-class.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { Tokenized } from '../../sidecar/prompts/prompt-maker.js';
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import { inputRates, PriceList } from '../../sidecar/usage/prices.js';
import { FakeClock } from './fake-clock.js';
import { FakeEngine } from './fake-engine.js';
import { ACME, FakeSpool } from './in-process.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { NO_FILES, postHead } from './request-head.js';
import { routeServices } from './route-services.js';

/** Picodollars a token of the chat model; a decision token costs {@link DECISION}. */
export const RATES = { input: 150_000n, cachedInput: 75_000n, output: 600_000n };
export const DECISION = 42_000n;

const NO_LIMIT = { inFlight: 0, perMinute: 0 };

export interface Asking {
  readonly route?: 'chat' | 'decisions';
  readonly stream?: boolean;
  readonly n?: number;
  readonly maxTokens?: number;
  /** Tokens of a chat prompt, or of a decision's input. */
  readonly prompt?: number;
  /** A decision’s questions, of two tokens each. */
  readonly questions?: number;
  readonly caller?: Caller;
  /** The tier that a chat asks for. */
  readonly tier?: ServiceTier;
  /** From the body on. */
  readonly timeoutMs?: number;
  /** What its tokenizing waits for. */
  readonly tokenizing?: Promise<void>;
}

/** A running request. */
export interface RunningRequest {
  /** Its caller disconnects. */
  leave(): void;
  /** Settles when nothing of the request is left: status of the answer, or code of the error. */
  readonly over: Promise<number | string | undefined>;
  /** The data of a stream's frames so far. */
  readonly events: readonly string[];
}

/**
 * The handlers of a chat and a decision model, with one seat each by default, on a clock and engines that the test
 * drives.
 */
export class BilledHarness {
  readonly clock = new FakeClock();
  readonly spool = new FakeSpool();
  readonly metrics = new Metrics(['chat', 'decide']);
  readonly ledger: CreditLedger;
  readonly quotas = new QuotaLedger(this.clock, () => new Date(this.clock.now()));
  readonly chatEngine = new FakeEngine();
  readonly decisionEngine = new FakeEngine();
  draining = false;
  readonly #models: ReadonlyMap<string, HostedModel>;
  readonly #isolate: boolean;
  readonly #contract: Services['contract'];
  readonly #creditInParts: boolean;
  readonly #prices: PriceList;

  /** `granted`: acme’s, picodollars. `isolate`: a decision’s questions share no decode. */
  constructor(
    granted: bigint,
    {
      seats = 1,
      open = true,
      isolate = true,
      contract = 'strict',
      creditInParts = false,
      free = false,
      headroom,
    }: {
      readonly seats?: number;
      readonly open?: boolean;
      readonly isolate?: boolean;
      readonly contract?: Services['contract'];
      readonly creditInParts?: boolean;
      /** The chat model costs nothing. */
      readonly free?: boolean;
      /** Of the seats, the share that stays idle while others are lent; absent: none is lent. */
      readonly headroom?: number;
    } = {},
  ) {
    this.#isolate = isolate;
    this.#contract = contract;
    this.#creditInParts = creditInParts;
    this.#prices = free ? FREE : PRICES;
    this.ledger = new CreditLedger(new Map([['acme', granted]]));
    if (open) this.ledger.open(new Map());
    this.#models = new Map(
      (['chat', 'decision'] as const).map((kind): [string, HostedModel] => {
        const queue = new SeatQueue({
          clock: this.clock,
          random: () => 0,
          config: { maxWaitMs: 10_000, waitingPerSeat: 8, waitingBytes: 1000 },
          seats,
          ...(headroom !== undefined && { headroom }),
        });
        queue.resume(seats);
        const engine = kind === 'chat' ? this.chatEngine : this.decisionEngine;
        const id = kind === 'chat' ? 'chat' : 'decide';
        return [id, { id, kind, ownedBy: 'test', created: 0, engine, scopeOf: (account) => account, queue }];
      }),
    );
  }

  /** The queue of a model. */
  queue(id: 'chat' | 'decide'): HostedModel['queue'] {
    const model = this.#models.get(id);
    if (!model) throw new Error(id);
    return model.queue;
  }

  /** What acme may still spend. */
  get balance(): bigint {
    const { granted, settled, reserved } = this.ledger.balance('acme');
    return granted - settled - reserved;
  }

  get closes(): readonly UsageRecord[] {
    return this.spool.records.filter(({ kind }) => kind === 'close');
  }

  ask(asking: Asking = {}): RunningRequest {
    const { route = 'chat' } = asking;
    const leaving = new AbortController();
    const events: string[] = [];
    let answer: number | string | undefined;
    const exchange: Exchange = {
      head: postHead((name) => HEADERS.get(name)),
      gone: leaving.signal,
      ...NO_FILES,
      body: () => Promise.resolve(new Body(new Uint8Array(2), 2, this.clock.now())),
      reply: ({ status }) => (answer = status),
      fail: ({ code }) => (answer = code),
      pieces: () => {
        throw new Error('a chat has no pieces');
      },
      stream: () => {
        answer = 200;
        return {
          event: (text) => events.push(text),
          fail: (error) => events.push(errorBody(error)),
          comment: () => undefined,
          unread: () => 0,
          end: () => undefined,
          bytes: 0,
        };
      },
    };
    const services = this.#services(asking);
    const running = route === 'chat' ? run(CHAT, exchange, services) : run(DECISIONS, exchange, services);
    return { leave: () => leaving.abort(), over: running.then(() => answer), events };
  }

  #services(asking: Asking): Services {
    const { clock, spool, metrics } = this;
    return routeServices(clock, {
      date: () => new Date(clock.now()),
      identity: { resolve: () => Promise.resolve(asking.caller ?? ACME) },
      prompts: {
        open: () => ({
          check: () => Promise.resolve({ kind: 'checked', params: paramsOf(asking) }),
          tokenize: async () => {
            await asking.tokenizing;
            return tokensOf(asking);
          },
          close: () => undefined,
        }),
      },
      models: this.#models,
      spool,
      pricing: this.#prices,
      credit: this.ledger,
      metrics,
      keyLimits: new RequestLimits(clock, {
        decisions: NO_LIMIT,
        chat: NO_LIMIT,
        embeddings: NO_LIMIT,
        models: NO_LIMIT,
      }),
      quotas: this.quotas,
      ...(this.#creditInParts && { creditInParts: true as const }),
      limits: {
        chatBytes: 1000,
        inlineBytes: 1000,
        keepAliveMs: 3_600_000,
        timeoutMs: asking.timeoutMs ?? 0,
      },
      contract: this.#contract,
      billingLine: 'drop',
      isolateDecisions: this.#isolate,
      leaving: () => this.draining,
      draining: () => this.draining,
    });
  }
}

/** The new prices are in force from the 10th second on. */
const PRICES = new PriceList([
  {
    version: 'test.1',
    effective: 0,
    decisions: inputRates(DECISION),
    chat: new Map([['chat', { ...RATES, tiers: { priority: RATES } }]]),
  },
  {
    version: 'test.2',
    effective: 10_000,
    decisions: inputRates(2n * DECISION),
    chat: new Map([['chat', { input: 1n, cachedInput: 1n, output: 1n }]]),
  },
]);

const NOTHING = { input: 0n, cachedInput: 0n, output: 0n };
const FREE = new PriceList([
  { version: 'free.1', effective: 0, decisions: inputRates(0n), chat: new Map([['chat', NOTHING]]) },
]);

const HEADERS = new Map([['content-type', 'application/json']]);

function paramsOf({ route = 'chat', stream = false, n = 1, maxTokens = 100, questions = 1, tier }: Asking): Params {
  if (route === 'decisions') {
    const question = { type: 'yes_no', answers: ['yes', 'no'] } as const;
    const all = Array.from({ length: questions }, (_, i) => ({ ...question, id: String(i) }));
    return { route, model: 'decide', temperature: 1, questions: all };
  }
  const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0 };
  return {
    route,
    model: 'chat',
    stream,
    includeUsage: stream,
    n,
    maxTokens,
    ...sampling,
    stops: [],
    jsonObject: false,
    ...(tier && { tier }),
  };
}

function tokensOf({ route = 'chat', prompt = 10, questions = 1 }: Asking): Tokenized {
  if (route === 'chat') return { kind: 'chat', prompt: tokenPrompt(new Uint32Array(prompt)) };
  const question = { tail: new Uint32Array(2), labels: Uint32Array.of(1, 2), temperature: 1 };
  return {
    kind: 'decision',
    input: new Uint32Array(prompt),
    questions: Array.from({ length: questions }, () => question),
  };
}
