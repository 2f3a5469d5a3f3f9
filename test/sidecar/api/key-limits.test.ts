import t from 'tap';
import { RequestLimits } from '../../../sidecar/access/limits.js';
import { CHAT } from '../../../sidecar/api/chat.js';
import { SYSTEMONE } from '../../../sidecar/api/decisions.js';
import { run } from '../../../sidecar/api/run.js';
import type { Services } from '../../../sidecar/api/services.js';
import { Body } from '../../../sidecar/http/body.js';
import type { Params } from '../../../sidecar/contracts/requests.js';
import type { Exchange } from '../../../sidecar/http/exchange.js';
import type { OpenBody } from '../../../sidecar/prompts/prompt-maker.js';
import { PARAMS } from '../../support/chat-harness.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { ACME } from '../../support/in-process.js';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import { exchangeWith, postHead } from '../../support/request-head.js';
import { routeServices } from '../../support/route-services.js';

const fault = new Error('a fault');
const broken = (): never => {
  throw fault;
};
const ONE = { inFlight: 1, perMinute: 1 };

/** A sidecar of which one part throws. */
function servicesWith(changes: Partial<Services>): Services {
  const clock = new FakeClock();
  const keyLimits = new RequestLimits(clock, { decisions: ONE, chat: ONE, embeddings: ONE, models: ONE });
  return routeServices(clock, { prompts: { open: broken }, keyLimits, ...changes });
}

function exchange(): Exchange {
  return exchangeWith({
    head: postHead((name) => (name === 'content-type' ? 'application/json' : undefined)),
    body: () => Promise.resolve(new Body(new Uint8Array(2), 2, 0)),
    reply: () => undefined,
    fail: () => undefined,
  });
}

t.test('a fault in a check keeps no place of its key', async (t) => {
  for (const route of [CHAT, SYSTEMONE]) {
    const group = route.operation;
    const services = servicesWith({});
    for (let i = 0; i < 3; i++) await t.rejects(run<Params>(route, exchange(), services), fault, `${group} ${i}`);
    t.match(services.keyLimits.take(ACME, group), { kind: 'taken' }, group);
  }
});

t.test('nor does a fault after the checks', async (t) => {
  const clock = new FakeClock();
  const prompt: OpenBody = {
    check: () => Promise.resolve({ kind: 'checked', params: PARAMS }),
    tokenize: broken,
    close: () => undefined,
  };
  const queue = new SeatQueue({
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
  for (let i = 0; i < 3; i++) await t.rejects(run(CHAT, exchange(), services), fault);
  t.match(services.keyLimits.take(ACME, 'chat'), { kind: 'taken' });
});
