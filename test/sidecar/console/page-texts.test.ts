/** What the page says of seats, queues, engines and prompt hosts. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import type { KeyView } from '../../../sidecar/api/keys-page.js';
import type { EngineView, HolderView, ModelView, PromptHostView, Snapshot } from '../../../sidecar/console/views.js';
import { sourceRoot } from '../../support/source-root.js';

async function page<T>(name: string): Promise<T> {
  return (await import(pathToFileURL(join(sourceRoot, 'sidecar/console/page', name)).href)) as T;
}

type Queue = ModelView['queue'];

const { queueLines } = await page<{
  readonly queueLines: (
    queue: Pick<Queue, 'accounts' | 'others' | 'nextVirtualMs' | 'paused'>,
  ) => { readonly account: string; readonly texts: readonly string[] }[];
}>('model.js');
const { seatsInWords, holderInWords } = await page<{
  readonly seatsInWords: (model: {
    readonly queue: Pick<Queue, 'seats' | 'kept' | 'paused'>;
    readonly holders: readonly HolderView[];
  }) => string;
  readonly holderInWords: (holder: HolderView) => string;
}>('seats.js');
const { storeFact } = await page<{ readonly storeFact: (fleet: NonNullable<Snapshot['fleet']>) => readonly string[] }>(
  'text.js',
);
const { engineInWords, hostInWords } = await page<{
  readonly engineInWords: (engine: Pick<EngineView, 'state' | 'problem' | 'readyInMs'>) => string;
  readonly hostInWords: (host: Pick<PromptHostView, 'up' | 'problem'>) => string;
}>('upkeep.js');

const { counted } = await page<{
  readonly counted: (
    now: Readonly<Record<string, number>>,
    before: Readonly<Record<string, number>> | undefined,
    words: (name: string) => string,
  ) => readonly (readonly [key: string, text: string, minute: number | null, all: number])[];
}>('counts.js');

function account(name: string, own: Partial<Queue['accounts'][number]>): Queue['accounts'][number] {
  return {
    account: name,
    weight: 4,
    waiting: 0,
    running: 1,
    kept: 0,
    virtualMs: 0,
    seatMs: 0,
    holdMs: null,
    calibration: 1,
    predictedWaitMs: 0,
    classes: [],
    ...own,
  };
}

const NO_OTHERS = { accounts: 0, waiting: 0, running: 0, seatMs: 0 };

t.test('Lead is counted from the account that is served next, and is empty while no account waits', async (t) => {
  const accounts = [
    account('runs', { virtualMs: 100 }),
    account('next', { virtualMs: 400, waiting: 1 }),
    account('ahead', { virtualMs: 900, waiting: 1 }),
    account('idle', { virtualMs: 900, running: 0 }),
  ];
  const leads = (nextVirtualMs: number | null): (string | undefined)[] =>
    queueLines({ accounts, others: NO_OTHERS, nextVirtualMs, paused: false }).map(({ texts }) => texts[2]);
  t.strictSame(leads(400), ['0 ms', '0 ms', '500 ms', '']);
  t.strictSame(leads(null), ['', '', '', '']);
});

t.test('seats that are kept for sessions are neither busy nor free, and are named with their account', async (t) => {
  const seats = seatsInWords({ queue: { seats: 8, kept: 2, paused: false }, holders: [] });
  t.equal(seats, '8 seats, 2 kept for sessions, 6 free');
  const accounts = [account('agents', { running: 1, kept: 2 }), account('other', {})];
  const lines = queueLines({ accounts, others: NO_OTHERS, nextVirtualMs: null, paused: false });
  t.strictSame(
    lines.map(({ texts }) => texts[0]),
    ['1 + 2 kept', '1'],
  );
});

t.test('while no engine takes requests no seat is free, and no wait is promised', async (t) => {
  const holder: HolderView = {
    id: 1,
    seats: [0],
    account: 'a',
    class: 'batch',
    lent: true,
    state: 'decoding',
    ageMs: 12_000,
  };
  const words = (paused: boolean): string => seatsInWords({ queue: { seats: 3, kept: 0, paused }, holders: [holder] });
  t.equal(words(false), '3 seats, 1 decode, 2 free');
  t.equal(words(true), '3 seats, 1 decode, 2 away');
  const waits = (paused: boolean): (string | undefined)[] =>
    queueLines({
      accounts: [account('a', {}), account('b', { predictedWaitMs: 1500 })],
      others: NO_OTHERS,
      nextVirtualMs: null,
      paused,
    }).map(({ texts }) => texts[3]);
  t.strictSame(waits(false), ['no wait', '1.5 s']);
  t.strictSame(waits(true), ['–', '–']);
  t.equal(holderInWords(holder), 'a (batch, lent), decode, 12 s on its seat', 'the time is that of the seat');
});

t.test('an engine and a prompt host say what they wait for', async (t) => {
  const engine = (state: string, problem: string | null = null): string =>
    engineInWords({ state, problem, readyInMs: 5000 });
  t.equal(engine('ready'), 'ready');
  t.equal(engine('cold'), 'cold, ready in 5.0 s');
  t.equal(engine('unloaded'), 'unloaded, loads on request in about 5.0 s');
  t.equal(engine('lost', 'no such file'), 'lost: no such file');
  t.equal(hostInWords({ up: true }), 'up');
  t.equal(hostInWords({ up: false }), 'starting');
  t.equal(hostInWords({ up: false, problem: 'unstartable: ENOENT' }), 'cannot start: unstartable: ENOENT');
});

t.test('what came in the last minute is not known without an earlier snapshot', async (t) => {
  const words = (name: string): string => name;
  t.strictSame(counted({ full: 3 }, undefined, words), [['full', 'full', null, 3]]);
  t.strictSame(counted({ full: 3 }, { full: 1 }, words), [['full', 'full', 2, 3]]);
  t.strictSame(counted({ full: 3 }, {}, words), [['full', 'full', 3, 3]]);
});

t.test('an overload is explained, and facts of a delivery are shown once there is one', async (t) => {
  const { overloadInWords } = await page<{ readonly overloadInWords: (load: number) => string }>('model.js');
  t.equal(overloadInWords(2.44), 'overloaded: 2.4 requests come for each that gets a seat');
  const { lentInWords } = await page<{ readonly lentInWords: (lent: object) => string[] }>('model.js');
  t.strictSame(lentInWords({ seats: 1, waiting: 3 }), ['1 seat lent, 3 requests waiting for one']);
  t.strictSame(lentInWords({ seats: 0, waiting: 0 }), [], 'nothing of lent seats where none is used');
  const { draftsInWords } = await page<{ readonly draftsInWords: (tokens: object) => string[] }>('model.js');
  t.strictSame(draftsInWords({ drafted: 1200, accepted: 900 }), ['1,200 tokens drafted, 75 % of them right']);
  t.strictSame(draftsInWords({ drafted: 0, accepted: 0 }), []);
  const { sessionsInWords } = await page<{ readonly sessionsInWords: (sessions: object) => string[] }>('model.js');
  const turns = { kept: 1200, cold: 34, first: 5 };
  const keeps = { continued: 1200, expired: 8, taken: 2, lost: 1 };
  t.strictSame(sessionsInWords({ turns, keeps }), [
    '1,200 of 1,234 further turns of sessions had their seat, kept seats ended unused: 8 expired, 2 taken, 1 lost',
  ]);
  t.strictSame(
    sessionsInWords({ turns: { ...turns, kept: 0, cold: 0 }, keeps }),
    [],
    'nothing of sessions of one turn',
  );
  const { usageFacts } = await page<{
    readonly usageFacts: (snapshot: Pick<Snapshot, 'at' | 'spool'>) => readonly (readonly string[])[];
  }>('upkeep.js');
  const spool = {
    healthy: true,
    why: null,
    bytes: 1,
    unsynced: 0,
    oldestUnsyncedSeconds: 0,
    errors: 0,
    lateCloses: 0,
    backlogBytes: 0,
    oldestSeconds: 0,
    delivered: 0,
    deadLetters: 0,
    retries: 0,
    lastSuccess: 0,
  };
  const names = (more: object): (string | undefined)[] =>
    usageFacts({ at: 0, spool: { ...spool, ...more } }).map(([name]) => name);
  const own = ['Health', 'On disk', 'Not yet durable', 'Oldest of these', 'Errors, late closes'];
  t.strictSame(names({}), own);
  for (const more of [{ backlogBytes: 1 }, { retries: 1 }, { deadLetters: 1 }, { delivered: 1 }, { lastSuccess: 1 }])
    t.strictSame(names(more).slice(own.length), [
      'To be delivered',
      'Oldest to be delivered',
      'Delivered, retries',
      'Dead letters',
      'Last delivery',
    ]);
});

t.test('the usage of a day, an account a line', async (t) => {
  const { usageLines } = await page<{
    readonly usageLines: (usage: NonNullable<Snapshot['usage']>) => readonly { readonly texts: readonly string[] }[];
  }>('upkeep.js');
  const sum = { requests: 1200, input: 3_400_000, cached: 12, output: 5, usd: 0.000_034_56 };
  const none = { requests: 0, input: 0, cached: 0, output: 0, usd: 0 };
  const accounts = [
    { account: 'acme', ...sum },
    { account: '', ...sum, usd: 1234.5 },
  ];
  const texts = (others: number): readonly (readonly string[])[] =>
    usageLines({ day: '2026-10-03', accounts, others: { accounts: others, ...none } }).map((line) => line.texts);
  const numbers = ['1,200', '3,400,000', '12', '5'];
  const named = [
    ['acme', ...numbers, '$0.000035'],
    ['keys not told apart', ...numbers, '$1,234.50'],
  ];
  t.strictSame(texts(0), named);
  t.strictSame(texts(1), [...named, ['1 other', '0', '0', '0', '0', '$0.00']]);
});

t.test('labels of quantiles do not lie on each other', async (t) => {
  interface Labelled {
    readonly label: string;
    readonly side: string;
  }
  const { bucketsOf } = await page<{
    readonly bucketsOf: (reading: { bounds: readonly number[]; counts: readonly number[] }) => readonly Labelled[];
  }>('histogram.js');
  const bounds = [1, 2, 3, 4, 5, 6, 7, 8];
  const labels = (...values: readonly number[]): (readonly string[])[] =>
    bucketsOf({ bounds, counts: [...bounds, 9].map((bound) => values.filter((value) => value < bound).length) })
      .filter(({ label }) => label !== '')
      .map(({ label, side }) => [label, side]);
  t.strictSame(labels(1, 1, 1), [['p50, p95', 'middle']], 'in one bar');
  t.strictSame(labels(1, 1, 2), [
    ['p50', 'left'],
    ['p95', 'right'],
  ]);
  t.strictSame(labels(1, 1, 7), [
    ['p50', 'middle'],
    ['p95', 'middle'],
  ]);
});

t.test('what a key may do is said in words, and a form becomes the properties that the sidecar takes', async (t) => {
  const { limitsInWords, rightsInWords, stateInWords, endInWords, balanceInWords, patchOf, withoutNulls } = await page<{
    readonly limitsInWords: (key: Partial<KeyView>) => string;
    readonly rightsInWords: (key: Pick<KeyView, 'entitlements'>, environment: string) => string;
    readonly stateInWords: (key: Pick<KeyView, 'state' | 'rotated'>) => string;
    readonly endInWords: (key: Partial<KeyView>) => string;
    readonly balanceInWords: (balance: { granted: string; available: string }) => string;
    readonly patchOf: (
      form: Readonly<Record<string, string>>,
      ticked: Readonly<Record<'models' | 'routes' | 'tiers', readonly string[]>>,
      environment: string,
    ) => object;
    readonly withoutNulls: (value: unknown) => unknown;
  }>('keys-text.js');
  t.equal(limitsInWords({}), 'as configured');
  t.equal(
    limitsInWords({ limits: { chat: {}, models: { inFlight: 0, perMinute: 9 } } }),
    'models any number at once, 9 a minute',
  );
  const rights = (entitlement: KeyView['entitlements'][string]): string =>
    rightsInWords({ entitlements: { production: entitlement } }, 'production');
  t.equal(rights({ models: 'all' }), 'all models');
  t.equal(
    rights({
      models: ['a', 'b'],
      routes: ['chat'],
      cohort: 'c',
      tiers: ['flex', 'priority'],
      tokensPerDay: 1000,
      usage: 'account',
    }),
    'a, b; routes chat; cohort c; tiers flex, priority; 1,000 tokens a day; sees its account’s usage',
  );
  t.equal(rights({ models: [], routes: [] }), 'no model; routes none');
  t.equal(rightsInWords({ entitlements: {} }, 'production'), 'nothing in production');
  t.equal(endInWords({}), 'never');
  t.equal(endInWords({ expires: '2026-10-03T14:05:06Z' }), '2026-10-03 14:05');
  t.equal(stateInWords({ state: 'good', rotated: '2026-10-03T14:05:06Z' }), 'replaced', 'it works for its grace');
  for (const state of ['good', 'revoked'] as const) t.equal(stateInWords({ state }), state);
  t.equal(endInWords({ revoked: '2026-10-03T14:05:06Z' }), 'revoked 2026-10-03 14:05');
  t.equal(balanceInWords({ granted: '0', available: '0' }), 'no credit granted');
  t.equal(balanceInWords({ granted: '1', available: '-0.5' }), '−$0.50 left of $1.00 granted');

  const empty = {
    class: 'standard',
    expires: '',
    models: 'all',
    routes: 'all',
    cohort: '',
    usage: '',
    tokensPerDay: '',
  };
  const none = patchOf(empty, { models: [], routes: [], tiers: [] }, 'production');
  t.strictSame(none, {
    class: 'standard',
    expires: null,
    limits: null,
    entitlements: {
      production: {
        models: 'all',
        routes: null,
        cohort: null,
        usage: null,
        tiers: null,
        tokensPerMinute: null,
        tokensPerDay: null,
        tokensPerMonth: null,
      },
    },
  });
  t.strictSame(withoutNulls(none), { class: 'standard', entitlements: { production: { models: 'all' } } });
  const filled = {
    ...empty,
    expires: '2026-10-03',
    models: 'some',
    routes: 'some',
    'chat-inFlight': ' 4 ',
    tokensPerDay: 'x',
  };
  t.strictSame(withoutNulls(patchOf(filled, { models: ['a'], routes: ['chat'], tiers: ['flex'] }, 'production')), {
    class: 'standard',
    expires: '2026-10-03T00:00:00Z',
    limits: { chat: { inFlight: 4 } },
    entitlements: { production: { models: ['a'], routes: ['chat'], tiers: ['flex'], tokensPerDay: 'x' } },
  });
});

t.test('batches by account: those that have not ended, their lines and answers', async (t) => {
  const { batchLines } = await page<{
    readonly batchLines: (
      batches: NonNullable<Snapshot['batches']>,
    ) => readonly { readonly texts: readonly string[] }[];
  }>('upkeep.js');
  const lines = batchLines([{ account: 'acme', batches: 2, lines: 100_000, answered: 1234 }]);
  t.same(
    lines.map(({ texts }) => texts),
    [['acme', '2', '100,000', '1,234']],
  );
});

t.test('the store of a fleet: shared by how many, apart, fenced, and charges that wait for it', async (t) => {
  const fact = (own: object): string => storeFact({ state: 'joined', sidecars: 3, lateSeconds: 0, ...own }).join(' | ');
  t.equal(fact({}), 'Store | shared by 3 sidecars | good');
  t.equal(fact({ sidecars: 1, lateSeconds: 90 }), 'Store | shared by 1 sidecar, charges have waited for 90 s | warn');
  t.match(fact({ state: 'apart' }), /does not answer \| bad/);
  t.match(fact({ state: 'fenced' }), /fenced: another process has this place \| bad/);
});
