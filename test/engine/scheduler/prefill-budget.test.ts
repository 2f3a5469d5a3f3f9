import t from 'tap';
import { LEAST_TOKENS, PrefillBudget } from '../../../engine/scheduler/batch-planner.js';

/** The time of a decode of prompt tokens on some machine, ms. */
interface Machine {
  readonly fixed: number;
  readonly each: number;
  /** Additional time for each token, for each thousand before it. */
  readonly deeper?: number;
}

const MOST = 256;
const DECODE_MS = 50;

function ms({ fixed, each, deeper = 0 }: Machine, tokens: number, depth: number): number {
  return fixed + tokens * (each + (deeper * depth) / 1000);
}

/** Evaluates a prompt as the budget allows; returns its chunks. */
function prefill(pace: PrefillBudget, machine: Machine, from: number, to: number): { tokens: number; ms: number }[] {
  const chunks: { tokens: number; ms: number }[] = [];
  for (let depth = from; depth < to;) {
    const tokens = pace.tokens(depth);
    const took = ms(machine, tokens, depth);
    pace.prefilled(tokens, depth, took);
    chunks.push({ tokens, ms: took });
    depth += tokens;
  }
  return chunks;
}

function known(share: number): PrefillBudget {
  const pace = new PrefillBudget(share, MOST);
  for (let i = 0; i < 40; i++) pace.decoded(DECODE_MS);
  return pace;
}

t.test('without measurements there is no limit', async (t) => {
  t.equal(new PrefillBudget(1, MOST).tokens(0), MOST);
  const half = new PrefillBudget(1, MOST);
  half.prefilled(MOST, 0, 100);
  t.equal(half.tokens(0), MOST);
});

t.test('prompts get their share of the time of next tokens, the fixed time of a decode included', async (t) => {
  for (const share of [0.5, 1, 2]) {
    for (const fixed of [0, 20]) {
      const chunks = prefill(known(share), { fixed, each: 1 }, 0, 8000);
      const late = chunks.slice(40).map((chunk) => chunk.ms / (share * DECODE_MS));
      t.ok(Math.max(...late) <= 1.01, `${share} ${fixed}: at most ${Math.max(...late)}`);
      t.ok(Math.min(...late) > 0.9, `${share} ${fixed}: at least ${Math.min(...late)}`);
    }
  }
});

t.test('deeper prompts, whose tokens take longer, keep within the time', async (t) => {
  const pace = known(1);
  const chunks = prefill(pace, { fixed: 5, each: 0.5, deeper: 0.8 }, 0, 8000);
  const late = chunks.slice(10).map((chunk) => chunk.ms);
  t.ok(Math.max(...late) < DECODE_MS * 1.1, `at most ${Math.max(...late)}`);
  t.ok(Math.min(...late) > DECODE_MS * 0.75, `at least ${Math.min(...late)}`);
  t.ok((chunks[10]?.tokens ?? 0) > 3 * (chunks.at(-1)?.tokens ?? NaN));
});

t.test('a short prompt in between does not enlarge the deep one’s next chunk', async (t) => {
  const machine = { fixed: 5, each: 0.1, deeper: 0.8 };
  const pace = known(1);
  prefill(pace, machine, 0, 6000);
  const before = pace.tokens(6000);
  const short = prefill(pace, machine, 0, 600);
  t.ok((short.at(-1)?.tokens ?? 0) > 2 * before, 'the short one is not limited by the speed of the deep one');
  t.equal(pace.tokens(6000), before);
});

t.test('a prompt that begins deep, after a reused prefix, uses the nearest known depth', async (t) => {
  const pace = known(1);
  pace.prefilled(100, 3000, 200);
  t.equal(pace.tokens(0), 25);
  t.equal(pace.tokens(9000), 25);
});

t.test('never fewer tokens than are worth a decode, never more than one takes', async (t) => {
  const slow = known(1);
  slow.prefilled(100, 0, 10_000);
  t.equal(slow.tokens(0), LEAST_TOKENS);
  const fast = known(1);
  fast.prefilled(100, 0, 1);
  t.equal(fast.tokens(0), MOST);
});

t.test('so many times the share, at most one decode', async (t) => {
  const pace = known(1);
  pace.prefilled(100, 0, 200);
  const once = pace.tokens(0);
  t.equal(pace.tokens(0, 2), 2 * once);
  t.equal(pace.tokens(0, 1000), MOST);
});

t.test('a time of zero sets no limit, and too few tokens are not measured', async (t) => {
  const still = known(1);
  still.prefilled(100, 0, 0);
  t.equal(still.tokens(0), MOST);
  const tiny = known(1);
  tiny.prefilled(LEAST_TOKENS - 1, 0, 1000);
  t.equal(tiny.tokens(0), MOST);
});

t.test('it follows changes', async (t) => {
  const pace = known(1);
  prefill(pace, { fixed: 0, each: 1 }, 0, 2000);
  prefill(pace, { fixed: 0, each: 2 }, 0, 500);
  t.ok(Math.abs(pace.tokens(0) - 25) <= 1, `${pace.tokens(0)}`);
  for (let i = 0; i < 60; i += 1) pace.decoded(2 * DECODE_MS);
  t.ok(Math.abs(pace.tokens(0) - 50) <= 1);
});
