import fc from 'fast-check';
import t from 'tap';
import {
  costOf,
  formatUsd,
  NO_TOKENS,
  parsePicodollars,
  parseRate,
  parseUsd,
  worstCostOf,
} from '../../../sidecar/domain/money.js';

t.test('rates are picodollars a token, exactly', async (t) => {
  for (const [text, picodollars] of [
    ['0.042', 42_000n],
    ['1', 1_000_000n],
    ['0', 0n],
    ['0.000001', 1n],
    ['15.00', 15_000_000n],
    ['0.1', 100_000n],
    ['123456789012.654321', 123_456_789_012_654_321n],
    ['0.0420000000000', 42_000n],
  ] as const)
    t.equal(parseRate(text), picodollars, text);
});

t.test('a rate that is no integer of picodollars a token, or no number, is refused', async (t) => {
  for (const text of [
    ...['0.0000001', '0.0420001', '-1', '', '.5', '1.', '1e3', '0x1', ' 1', '1 ', '1,5', 'NaN', '1234567890123'],
    '+1',
  ])
    t.equal(parseRate(text), undefined, text);
});

t.test('dollars are a million million picodollars', async (t) => {
  for (const [text, picodollars] of [
    ['25.00', 25_000_000_000_000n],
    ['-3.5', -3_500_000_000_000n],
    ['0.000000000001', 1n],
    ['-0.000000042', -42_000n],
    // More than a floating-point number represents exactly.
    ['999999999999.999999999999', 999_999_999_999_999_999_999_999n],
  ] as const)
    t.equal(parseUsd(text), picodollars, text);
  for (const text of ['0.0000000000001', '--1', '1e-12', '']) t.equal(parseUsd(text), undefined, text);
});

t.test('text and picodollars convert both ways', async () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: -(10n ** 23n), max: 10n ** 23n }),
      (amount) => parseUsd(formatUsd(amount)) === amount && parsePicodollars(String(amount)) === amount,
    ),
  );
});

t.test('picodollars in text are an integer', async (t) => {
  for (const text of ['', '1.0', '0x1', ' 1', '1_000', '1'.repeat(41)])
    t.equal(parsePicodollars(text), undefined, text);
});

t.test('the cost of tokens, cached ones at their own rate', async (t) => {
  const rates = { input: 150_000n, cachedInput: 75_000n, output: 600_000n };
  t.equal(costOf(rates, NO_TOKENS), 0n);
  t.equal(costOf(rates, { promptTokens: 1000, cachedTokens: 0, completionTokens: 0 }), 150_000_000n);
  t.equal(
    costOf(rates, { promptTokens: 1000, cachedTokens: 768, completionTokens: 41 }),
    232n * 150_000n + 768n * 75_000n + 41n * 600_000n,
  );
});

t.test('no request costs more than its worst case, whichever of the input rates is higher', async () => {
  const rate = fc.bigInt({ min: 0n, max: 10n ** 9n });
  const tokens = fc.nat({ max: 2 ** 30 });
  fc.assert(
    fc.property(rate, rate, rate, tokens, tokens, tokens, tokens, (input, cachedInput, output, prompt, a, b, c) => {
      const rates = { input, cachedInput, output };
      const [made, most] = [Math.min(b, c), Math.max(b, c)];
      const cost = costOf(rates, { promptTokens: prompt, cachedTokens: a % (prompt + 1), completionTokens: made });
      return cost <= worstCostOf(rates, prompt, most);
    }),
  );
});
