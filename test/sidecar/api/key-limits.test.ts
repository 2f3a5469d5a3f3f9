import t from 'tap';
import { IdempotencyKeys } from '../../../sidecar/access/idempotency.js';
import { RequestLimits } from '../../../sidecar/access/limits.js';
import { TokenQuotas } from '../../../sidecar/access/quotas.js';
import { chat } from '../../../sidecar/api/chat.js';
import { decide } from '../../../sidecar/api/decisions.js';
import { SeatBoard } from '../../../sidecar/api/seat-board.js';
import type { Services } from '../../../sidecar/api/services.js';
import { Body } from '../../../sidecar/http/body.js';
import type { Exchange } from '../../../sidecar/http/exchange.js';
import type { OpenBody } from '../../../sidecar/prompts/prompt-maker.js';
import { BUILT_IN_PRICES } from '../../../sidecar/usage/prices.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { ACME, FakeSpool, RecordingLog } from '../../support/in-process.js';
import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import { postHead } from '../../support/request-head.js';

const fault = new Error('a fault');
const broken = (): never => {
  throw fault;
};
const ONE = { inFlight: 1, perMinute: 1 };

/** A sidecar of which one part throws. */
function servicesWith(changes: Partial<Services>): Services {
  const clock = new FakeClock();
  return {
    clock,
    date: () => new Date(0),
    random: () => 0,
    contract: 'strict',
    identity: { resolve: () => Promise.resolve(ACME) },
    prompts: { open: broken },
    models: new Map(),
    spool: new FakeSpool(),
    pricing: BUILT_IN_PRICES,
    credit: undefined,
    metrics: new Metrics([]),
    board: new SeatBoard(),
    log: new RecordingLog(),
    idempotency: new IdempotencyKeys(clock, { maxKeys: 1, keepMs: 1 }),
    keyLimits: new RequestLimits(clock, { decisions: ONE, chat: ONE, models: ONE }),
    quotas: new TokenQuotas(() => new Date(0)),
    limits: { chatBytes: 1000, inlineBytes: 1000, keepAliveMs: 60_000, streamIntervalMs: 0, timeoutMs: 0 },
    isolateDecisions: true,
    leaving: () => false,
    draining: () => false,
    ...changes,
  };
}

function exchange(): Exchange {
  return {
    head: postHead((name) => (name === 'content-type' ? 'application/json' : undefined)),
    gone: new AbortController().signal,
    body: () => Promise.resolve(new Body(new Uint8Array(2), 2, 0)),
    reply: () => undefined,
    fail: () => undefined,
    stream: broken,
  };
}

t.test('a fault in a check keeps no place of its key', async (t) => {
  for (const [group, handler] of [
    ['chat', chat],
    ['decisions', (exchange: Exchange, services: Services) => decide('systemone', exchange, services)],
  ] as const) {
    const services = servicesWith({});
    for (let i = 0; i < 3; i++) await t.rejects(handler(exchange(), services), fault, `${group} ${i}`);
    t.equal(services.keyLimits.take(ACME, group).kind, 'taken', group);
  }
});

t.test('nor does a fault after the checks', async (t) => {
  const clock = new FakeClock();
  const prompt: OpenBody = {
    check: () =>
      Promise.resolve({
        kind: 'checked',
        params: {
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
        },
      }),
    tokenize: broken,
    close: () => undefined,
  };
  const queue = createFairQueue({
    clock,
    random: () => 0,
    config: { maxWaitMs: 1000, waitingPerSeat: 8, waitingBytes: 1000 },
    seats: 1,
  });
  queue.resume(1);
  const engine = new FakeEngine();
  const scopeOf = (): string => 'all';
  const model = { id: 'fake', kind: 'chat', ownedBy: 'test', created: 0, engine, scopeOf, queue } as const;
  const services = servicesWith({ prompts: { open: () => prompt }, models: new Map([['fake', model]]) });
  for (let i = 0; i < 3; i++) await t.rejects(chat(exchange(), services), fault);
  t.equal(services.keyLimits.take(ACME, 'chat').kind, 'taken');
});
