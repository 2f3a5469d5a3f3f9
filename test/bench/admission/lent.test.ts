/** What an endless batch on lent seats costs people, and what it gets done, simulated: the goals of docs/admission.md#lent-seats. */
import t from 'tap';
import { beside, type Beside, type BesideFigures } from '../../../bench/admission/lent.js';
import { GPU } from '../../../bench/admission/sessions/stand-in-engine.js';
import { quantile } from '../../../bench/support/stats.js';

const CELL = { seats: 16, headroom: 0.5, load: 0.3, burst: 1, seed: 1, minutes: 10 } as const;

const cell = (way: Beside['way'], more: Partial<Beside> = {}): Promise<BesideFigures> =>
  beside({ ...CELL, way, ...more });
const [none, lent, ideal] = [await cell('none'), await cell('lent'), await cell('ideal')];

t.test('people wait for a step and a chunk at most, and the queue learns nothing of the batch', async (t) => {
  const most = GPU.stepMs(CELL.seats) + GPU.chunk * GPU.tokenMs;
  const waitMs = quantile(lent.waits, 0.99);
  t.ok(waitMs <= most, `${waitMs} ms of ${most}`);
  t.equal(lent.waits.length, none.waits.length);
  t.match(lent.report.overload, { standing: false, load: none.report.overload.load });
});

t.test(
  'the batch gets 0.9 of what the headroom allows, also where people come in bursts, in equal shares',
  async (t) => {
    const part = lent.batchTokensPerSecond / ideal.batchTokensPerSecond;
    t.ok(part >= 0.9, `${part}`);
    const [bursts, most] = [await cell('lent', { burst: 4 }), await cell('ideal', { burst: 4 })];
    const ofBursts = bursts.batchTokensPerSecond / most.batchTokensPerSecond;
    t.ok(ofBursts >= 0.9, `${ofBursts} in bursts`);
    const { accounts } = lent.report.lent;
    const mean = accounts.reduce((sum, { seatMs }) => sum + seatMs, 0) / accounts.length;
    for (const { account, seatMs } of accounts)
      t.ok(Math.abs(seatMs / mean - 1) <= 0.02, `${account}: ${seatMs / mean}`);
  },
);
