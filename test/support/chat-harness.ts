import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { ChatParams } from '../../sidecar/contracts/requests.js';
import { CHAT } from '../../sidecar/api/chat.js';
import type { WorkRoute } from '../../sidecar/api/route.js';
import { run } from '../../sidecar/api/run.js';
import type { Services } from '../../sidecar/api/services.js';
import { errorBody } from '../../sidecar/domain/errors.js';
import { Body } from '../../sidecar/http/body.js';
import type { Exchange, Reply } from '../../sidecar/http/exchange.js';
import type { Checked, OpenBody, Tokenized } from '../../sidecar/prompts/prompt-maker.js';
import { FakeClock } from './fake-clock.js';
import { FakeEngine } from './fake-engine.js';
import { deferred } from './http-server.js';
import { ACME, RecordingLog } from './in-process.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { NO_FILES, postHead } from './request-head.js';
import { routeServices } from './route-services.js';

export const PARAMS: ChatParams = {
  route: 'chat',
  model: 'fake',
  stream: false,
  includeUsage: false,
  n: 1,
  temperature: 0,
  topP: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  stops: [],
  jsonObject: false,
};

/** The duration of each part before the model, in ms of the fake clock. */
export interface Takes {
  /** The key’s check, while the body is there, from its last byte on. */
  readonly authorize: number;
  readonly check: number;
  readonly tokenize: number;
}

/** What the prompt host answers. */
export interface HostAnswers {
  readonly check: Checked;
  readonly tokenize: Tokenized;
  /** Of a prompt that is made again; absent: the same. */
  readonly tokenizeAgain?: Tokenized;
}

const MADE: HostAnswers = {
  check: { kind: 'checked', params: PARAMS },
  tokenize: { kind: 'chat', prompt: tokenPrompt(Uint32Array.of(1, 2, 3)) },
};

/** Whole chat replies of one model, behind parts with configured durations, on a fake clock. */
export class ChatHarness {
  readonly clock = new FakeClock();
  readonly engine = new FakeEngine();
  readonly log = new RecordingLog();
  readonly queue: SeatQueue;

  /** `seats`: of each replica. */
  constructor(seats: readonly number[] = [1]) {
    this.queue = new SeatQueue({
      clock: this.clock,
      random: () => 0,
      config: { maxWaitMs: 10_000, waitingPerSeat: 8, waitingBytes: 1000 },
      seats: seats.map((count) => ({ seats: count, contextPerSeat: Infinity })),
    });
  }

  /** A whole chat reply, resolved once it is written. The body’s last byte arrives with the head. */
  async ask(takes: Takes, answers: Partial<HostAnswers> = {}, route: WorkRoute<ChatParams> = CHAT): Promise<Reply> {
    const replied = deferred<Reply>();
    const receivedAt = this.clock.now();
    const exchange: Exchange = {
      head: postHead((name) => HEADERS.get(name)),
      gone: new AbortController().signal,
      ...NO_FILES,
      body: () => Promise.resolve(new Body(new Uint8Array(2), 2, receivedAt)),
      reply: replied.resolve,
      fail: (error, headers) =>
        replied.resolve({ status: error.status, ...(headers && { headers }), body: errorBody(error) }),
      stream: () => {
        throw new Error('no stream was requested');
      },
      pieces: () => {
        throw new Error('a chat has no pieces');
      },
    };
    await run(route, exchange, this.#services(takes, { ...MADE, ...answers }));
    return replied.promise;
  }

  #services({ authorize, check, tokenize }: Takes, answers: HostAnswers): Services {
    const { clock } = this;
    /** Advances the clock before the step ends, as if it had taken so long. */
    const after = <T>(ms: number, value: T): Promise<T> => {
      clock.advance(ms);
      return Promise.resolve(value);
    };
    let made = 0;
    const prompt: OpenBody = {
      check: () => after(check, answers.check),
      tokenize: () => after(tokenize, (made++ > 0 && answers.tokenizeAgain) || answers.tokenize),
      close: () => undefined,
    };
    const model = {
      id: 'fake',
      kind: 'chat',
      ownedBy: 'test',
      created: 0,
      engine: this.engine,
      scopeOf: () => 'all',
      queue: this.queue,
      loadWaitMs: 10_000,
    } as const;
    return routeServices(clock, {
      identity: { resolve: () => after(authorize, ACME) },
      prompts: { open: () => prompt },
      models: new Map([['fake', model]]),
      log: this.log,
    });
  }
}

const HEADERS = new Map([['content-type', 'application/json']]);
