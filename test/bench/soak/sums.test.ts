import t from 'tap';
import type { Answer } from '../../../bench/soak/caller.js';
import { compare, type Close } from '../../../bench/soak/sums.js';

const NONE = { reported: 0n, billed: 0n, billedOthers: 0n, different: 0, billedForNothing: 0, strange: 0 };
const COUNTS = { promptTokens: 3, cachedTokens: 1, completionTokens: 4 };
/** 2 fresh, 1 cached, 4 generated. */
const COST = 2n * 150_000n + 75_000n + 4n * 600_000n;

function answer(id: string, end: Answer['end']): Answer {
  return { id, end, durationMs: 1, ...(end === 'whole' && { reported: COUNTS }) };
}

function close(requestId: string, changes: Partial<Close> = {}): Close {
  return { requestId, ...COUNTS, price: { picodollars: String(COST) }, ...changes };
}

t.test('usage that agrees with the bill, and each way in which it may not', async (t) => {
  const whole = [answer('a', 'whole')];
  const free = { price: { picodollars: '0' } };
  t.strictSame(compare(whole, [close('a')]), { ...NONE, reported: COST, billed: COST });
  t.strictSame(compare(whole, []), { ...NONE, reported: COST, different: 1 }, 'not billed');
  const twice = compare(whole, [close('a'), close('a')]);
  t.strictSame(twice, { ...NONE, reported: COST, billed: 2n * COST, different: 1 }, 'billed twice');
  t.match(compare(whole, [close('a', { cachedTokens: 0 })]), { different: 1 }, 'other counts');
  t.match(compare(whole, [close('a', free)]), { reported: COST, billed: 0n, different: 0 }, 'another price');
  t.strictSame(compare([answer('a', 'left')], [close('a')]), { ...NONE, billedOthers: COST });
  for (const end of ['left', 'cut', 'refused', 'broken'] as const) {
    t.match(
      compare([answer('a', end)], [close('a', free), close('a', free)]),
      { different: 1 },
      `${end}, closed twice`,
    );
  }
  t.match(compare([answer('a', 'refused')], [close('a')]), { billedForNothing: 1 });
  t.strictSame(compare([answer('a', 'refused')], [close('a', free)]), NONE, 'requests that cost nothing');
  t.strictSame(compare([], [close('b')]), { ...NONE, strange: 1 });
});
