import t from 'tap';
import { CreditLedger } from '../../../sidecar/access/credit.js';
import type { EngineState } from '../../../sidecar/engine-client/engine.js';
import { readyz, readyzWithReasons } from '../../../sidecar/api/health.js';
import type { HostedModel } from '../../../sidecar/api/services.js';
import type { Reply } from '../../../sidecar/http/exchange.js';
import { FakeSpool } from '../../support/in-process.js';
import { exchangeWith } from '../../support/request-head.js';

type Parts = Parameters<typeof readyz>[1];

/** A message of llama.cpp or the operating system. */
const WHY = '/models/weights.gguf is cut off';

/** A prompt host that is away for a moment. */
const HOST = { lane: 'short', up: false, queued: 0, running: 0, restarts: 1 } as const;

/** The answer of a listener. */
function answer(handler: typeof readyz, parts: Parts): { readonly status: number; readonly body: unknown } {
  const replies: Reply[] = [];
  handler(exchangeWith({ reply: (reply) => void replies.push(reply) }), parts);
  return { status: replies[0]?.status ?? 0, body: JSON.parse(String(replies[0]?.body)) as unknown };
}

function model(id: string, state: EngineState, onDemand = false): [string, HostedModel] {
  const problem = state === 'lost' ? WHY : undefined;
  const engine = { state, onDemand, problem, replicas: [{ state, problem }] } as unknown as HostedModel['engine'];
  return [id, { id, engine } as HostedModel];
}

/** A model whose engine was ended, as a drain does. */
function ended(id: string): [string, HostedModel] {
  const engine = {
    state: 'lost',
    onDemand: false,
    problem: undefined,
    replicas: [],
  } as unknown as HostedModel['engine'];
  return [id, { id, engine } as HostedModel];
}

/** A model of which some replicas do not serve. */
function replicated(id: string): [string, HostedModel] {
  const replicas = [
    { state: 'ready', problem: undefined },
    { state: 'lost', problem: WHY },
    { state: 'cold', problem: undefined },
  ];
  return [id, { id, engine: { state: 'ready', replicas } as unknown as HostedModel['engine'] } as HostedModel];
}

function parts(changes: Partial<Parts> = {}): Parts {
  const models = new Map([model('m', 'ready')]);
  return { leaving: () => false, spool: new FakeSpool(), models, credit: undefined, ...changes };
}

/** A sidecar in this state, as callers and as operators see it. */
function reported(changes: Partial<Parts>): unknown[] {
  const open = answer(readyz, parts(changes));
  const { reasons, ...rest } = answer(readyzWithReasons, parts(changes)).body as { reasons: string[] };
  t.strictSame(rest, open.body, 'both have the same status');
  t.equal(open.status, (open.body as { status: string }).status === 'ready' ? 200 : 503);
  t.notMatch(JSON.stringify(open.body), /gguf|late|secret-model/, 'nothing of why');
  return [open.body, reasons];
}

t.test('each state: for callers without a reason, for operators with it', async (t) => {
  const ill = new FakeSpool();
  ill.health = { ok: false, why: 'late' };
  const state = (status: string, models: string, usage: string): object => ({ status, parts: { models, usage } });
  for (const [changes, publicState, reasons] of [
    [{}, state('ready', 'ready', 'ready'), []],
    [
      {
        promptHosts: () => [
          { ...HOST, up: true },
          { ...HOST, problem: 'unstartable: EMFILE' },
        ],
      },
      { status: 'unhealthy', parts: { models: 'ready', usage: 'ready', prompts: 'unhealthy' } },
      ['prompt host: short: unstartable: EMFILE'],
    ],
    [
      {
        promptHosts: () => [
          { ...HOST, up: true },
          { ...HOST, lane: 'batch', problem: 'unstartable: EMFILE' },
        ],
      },
      // Requests are served.
      state('ready', 'ready', 'ready'),
      ['prompt host: batch: unstartable: EMFILE'],
    ],
    [{ promptsReady: () => false }, state('starting', 'starting', 'ready'), ['starting: prompt hosts']],
    [{ models: new Map() }, state('starting', 'starting', 'ready'), ['cold']],
    [
      { models: new Map([model('secret-model', 'cold'), model('m', 'ready')]), promptsReady: () => false },
      state('starting', 'starting', 'ready'),
      ['cold: secret-model'],
    ],
    [
      { models: new Map([model('m', 'cold'), model('secret-model', 'lost')]) },
      state('unhealthy', 'unhealthy', 'ready'),
      ['cold: m', `lost: secret-model: ${WHY}`],
    ],
    [
      { models: new Map([model('secret-model', 'unloaded', true), model('n', 'lost', true)]) },
      state('ready', 'ready', 'ready'),
      // The next request starts it again, so the sidecar stays ready.
      [`lost: n: ${WHY}`],
    ],
    [
      { models: new Map([replicated('secret-model')]) },
      state('ready', 'ready', 'ready'),
      [`lost: secret-model: replica 1: ${WHY}`, 'cold: secret-model: replica 2'],
    ],
    [{ spool: ill }, state('unhealthy', 'ready', 'unhealthy'), ['spool_unhealthy: late']],
    [
      { leaving: () => true, spool: ill },
      state('draining', 'ready', 'unhealthy'),
      ['draining', 'spool_unhealthy: late'],
    ],
    [
      { leaving: () => true, models: new Map([ended('secret-model'), model('m', 'ready')]) },
      state('draining', 'draining', 'ready'),
      ['draining', 'draining: secret-model'],
    ],
    // Given up before.
    [
      { leaving: () => true, models: new Map([ended('m'), model('secret-model', 'lost')]) },
      state('draining', 'unhealthy', 'ready'),
      ['draining', 'draining: m', `lost: secret-model: ${WHY}`],
    ],
  ] as const satisfies readonly (readonly [Partial<Parts>, object, readonly string[]])[])
    t.strictSame(reported(changes), [publicState, reasons]);
});

t.test('a sidecar that does not know its balances yet is not ready', async (t) => {
  const credit = new CreditLedger(new Map());
  const ready = { models: 'ready', usage: 'ready' };
  t.strictSame(reported({ credit }), [
    { status: 'starting', parts: { ...ready, credit: 'starting' } },
    ['credit_gate_unavailable'],
  ]);
  credit.open(new Map());
  t.strictSame(reported({ credit }), [{ status: 'ready', parts: { ...ready, credit: 'ready' } }, []]);
});
