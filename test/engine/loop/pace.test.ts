import t from 'tap';
import { LEAST_TOKENS, Pace } from '../../../engine/loop/pace.js';

/** Prompts cost `fixed` and `each` ms a token, next tokens `decode` ms; so many of each were seen. */
function paced(share: number, { fixed = 0, each = 1, decode = 50, seen = 40 }): Pace {
  const pace = new Pace(share, 256, LEAST_TOKENS.cpu);
  for (let i = 0; i < seen; i += 1) {
    const tokens = 16 + ((i * 37) % 200);
    pace.prefilled(tokens, fixed + each * tokens);
    pace.decoded(decode);
  }
  return pace;
}

t.test('all may go, as long as nothing is known', async (t) => {
  t.equal(new Pace(1, 256, LEAST_TOKENS.cpu).tokens(), 256);
  const half = new Pace(1, 256, LEAST_TOKENS.cpu);
  half.prefilled(256, 100);
  t.equal(half.tokens(), 256);
});

t.test('prompts get their share of the time of next tokens', async (t) => {
  t.equal(paced(1, {}).tokens(), 50);
  t.equal(paced(2, {}).tokens(), 100);
  t.equal(paced(0.5, {}).tokens(), 25);
});

t.test('the fixed cost of a decode is not the tokens’', async (t) => {
  const tokens = paced(1, { fixed: 40, each: 0.5 }).tokens();
  t.ok(tokens >= 95 && tokens <= 100, `${tokens}`);
});

t.test('never fewer than are worth a decode, never more than one holds', async (t) => {
  t.equal(paced(1, { each: 100 }).tokens(), LEAST_TOKENS.cpu);
  t.equal(paced(1, { each: 0.01 }).tokens(), 256);
  t.equal(new Pace(1, 4, LEAST_TOKENS.gpu).tokens(), 4);
});

t.test('chunks of one size are taken at their mean, and no time at all is no limit', async (t) => {
  const pace = new Pace(1, 256, LEAST_TOKENS.cpu);
  pace.decoded(50);
  for (let i = 0; i < 5; i += 1) pace.prefilled(100, 100);
  t.equal(pace.tokens(), 50);
  const still = new Pace(1, 256, LEAST_TOKENS.cpu);
  still.decoded(0);
  still.prefilled(100, 0);
  t.equal(still.tokens(), 256);
});

t.test('what sizes that hardly differ seem to say of the slope is not believed', async (t) => {
  const pace = new Pace(1, 256, LEAST_TOKENS.cpu);
  pace.decoded(36);
  // 19 tokens in 63 ms, give or take: noise that would pass for a line of 1 ms a token.
  for (let i = 0; i < 60; i += 1) pace.prefilled(18 + (i % 3), 62 + (i % 3));
  t.equal(pace.tokens(), Math.floor((36 * 19) / 63));
});

t.test('it follows what changes', async (t) => {
  const pace = paced(1, {});
  for (let i = 0; i < 60; i += 1) {
    pace.prefilled(16 + ((i * 37) % 200), 2 * (16 + ((i * 37) % 200)));
    pace.decoded(50);
  }
  t.ok(Math.abs(pace.tokens() - 25) <= 1, `${pace.tokens()}`);
  for (let i = 0; i < 60; i += 1) pace.decoded(100);
  t.ok(Math.abs(pace.tokens() - 50) <= 1);
});
