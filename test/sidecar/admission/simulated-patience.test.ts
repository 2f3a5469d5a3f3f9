/** Overload by callers who leave: what the queue reaches with what it learns of them (docs/admission.md#overload). */
import t from 'tap';
import type { Refused } from '../../../sidecar/admission/types.js';
import { SeatHarness, share, type Load } from '../../support/seat-harness.js';

const MINUTE = 60_000;
const SEATS = 8;
const ACCOUNTS = 6;
const MAX_WAIT_MS = 10_000;
/** Figures are of the requests that arrive in this time. */
const [FROM, TO] = [MINUTE, 5 * MINUTE - MAX_WAIT_MS];

/** Six accounts with equal demand for five minutes, in all `load` times what the seats can serve. */
async function overloaded(
  { load, holdMs = 1000, ...more }: Partial<Load> & { readonly load: number },
  { seed = 1, learns = true, attacker = {} }: { seed?: number; learns?: boolean; attacker?: Partial<Load> } = {},
): Promise<SeatHarness> {
  const config = { maxWaitMs: MAX_WAIT_MS, waitingPerSeat: 8, waitingBytes: Infinity };
  const harness = new SeatHarness(seed, { seats: SEATS, config, learns });
  const all = { awaits: 'end', holdMs, everyMs: (ACCOUNTS * holdMs) / (load * SEATS), ...more } as const;
  for (let i = 0; i < ACCOUNTS; i += 1) harness.offer({ account: `${i}`, ...all, ...(i === 0 && attacker) });
  await harness.run(5 * MINUTE);
  return harness;
}

/** The part of all seat time that replies got whose callers had them. */
function good(harness: SeatHarness): number {
  const done = harness.of(undefined, FROM, TO).filter(({ end }) => end === 'done');
  return done.reduce((sum, { seatMs }) => sum + seatMs, 0) / (SEATS * (TO - FROM));
}

t.test('callers who wait 2 s, at twice the load: much more is of use than without learning', async (t) => {
  const callers = { load: 2, patienceMs: 2000 };
  const [learned, without] = [good(await overloaded(callers)), good(await overloaded(callers, { learns: false }))];
  t.ok(learned > without + 0.1 && learned > 0.7, `${learned}, ${without} without`);
});

t.test('most replies take longer than their callers wait: seats are kept for those who come', async (t) => {
  let sum = 0;
  for (const seed of [1, 2, 3]) sum += good(await overloaded({ load: 4, patienceMs: 2000, holdMs: 3000 }, { seed }));
  t.ok(sum / 3 > 0.1, `${sum / 3}`);
});

t.test('at 0.8 of the load almost no request is refused', async (t) => {
  for (const patienceMs of [8000, Infinity]) {
    const fates = (await overloaded({ load: 0.8, patienceMs })).of(undefined, FROM, TO);
    t.ok(share(fates, 'done', 'left') > 0.995, `${patienceMs} ms: ${share(fates, 'done', 'left')}`);
  }
});

const others = (harness: SeatHarness) => harness.of(undefined, FROM, TO).filter(({ account }) => account !== '0');

t.test('an account whose callers disconnect on purpose does not reduce the service of the others', async (t) => {
  const callers = { load: 2, patienceMs: 8000 };
  const calm = await overloaded(callers);
  const attacked = await overloaded(callers, { attacker: { patienceMs: 100 } });
  t.ok(share(others(attacked), 'done') >= share(others(calm), 'done'), 'they are served as much as without it');
  t.ok(share(attacked.of('0', FROM, TO), 'done') < 0.2, 'and it is not');
});

t.test('many accounts whose callers disconnect on purpose do not reduce the service of small accounts', async (t) => {
  const config = { maxWaitMs: MAX_WAIT_MS, waitingPerSeat: 8, waitingBytes: Infinity };
  const harness = new SeatHarness(1, { seats: SEATS, config });
  // 1.2 times the load, and forty accounts with a request in forty seconds. The attacker has twenty, and stays for 0.1 s.
  for (const [name, accounts, perSecond, patienceMs] of [
    ['large', 6, 8.6, 8000],
    ['small', 40, 1, 8000],
    ['attacker', 20, 4, 100],
  ] as const)
    for (let i = 0; i < accounts; i += 1) {
      const load = { awaits: 'first-token', holdMs: 1000, everyMs: (1000 * accounts) / perSecond, patienceMs } as const;
      harness.offer({ account: `${name} ${i}`, ...load });
    }
  await harness.run(5 * MINUTE);
  const small = harness.of(undefined, FROM, TO).filter(({ account }) => account.startsWith('small'));
  t.ok(share(small, 'done') >= 0.98, `${share(small, 'done')} of the small accounts' requests were served`);
});

t.test('at four times the load nine of ten callers that wait for a reserved Retry-After are served', async (t) => {
  let refusals = 0;
  const none: number[] = [];
  const comesBack = ({ retry, retryAfterMs }: Refused): number | undefined => {
    if (retry === 'none') none.push(retryAfterMs);
    if (retry !== 'reserved') return undefined;
    refusals += 1;
    // As a client reads it, in whole seconds.
    return refusals % 2 === 0 ? retryAfterMs : Math.ceil(retryAfterMs / 1000) * 1000;
  };
  const again = (await overloaded({ load: 4, comesBack })).of(undefined, 0, TO).filter((fate) => fate.again);
  t.ok(again.length > 300, `${again.length} came back`);
  t.ok(share(again, 'done') >= 0.9, `${share(again, 'done')} were served`);
  t.ok(none.includes(59_000), 'the others got a long Retry-After');
});
