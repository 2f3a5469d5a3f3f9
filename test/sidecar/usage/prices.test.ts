import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FileProblem } from '../../../sidecar/lib/checked-file.js';
import { BUILT_IN_PRICES, readPriceFile } from '../../../sidecar/usage/prices.js';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const CHAT = { id: 'large', kind: 'chat' } as const;
const DECIDE = { id: 'decide', kind: 'decision' } as const;
const LARGE = { input: '0.15', cachedInput: '0.075', output: '0.60' };
const CURRENT = {
  version: '2026-10-03.4',
  effective: '2026-10-03T00:00:00Z',
  decisions: '0.042',
  chat: { large: LARGE },
};
const NEXT = { ...CURRENT, version: '2027-01-01.1', effective: '2027-01-01T00:00:00Z', decisions: '0.05' };
const OLD = { ...CURRENT, version: '2026-01-01.1', effective: '2026-01-01T00:00:00Z', chat: {} };

async function file(t: Test, content: unknown): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-prices-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'prices.json');
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

t.test('without a file decisions have the published price, and chat is free', async (t) => {
  t.strictSame(BUILT_IN_PRICES.tariff(DECIDE, NOW), {
    version: '2026-10-03.4',
    rates: { input: 42_000n, cachedInput: 42_000n, output: 0n },
  });
  t.match(BUILT_IN_PRICES.tariff(CHAT, NOW), { version: '2026-10-03.4', rates: { input: 0n, output: 0n } });
  t.equal(BUILT_IN_PRICES.unpriced([CHAT, DECIDE], NOW), undefined);
});

t.test('each moment has the version in force', async (t) => {
  const list = await readPriceFile(await file(t, { version: 1, prices: [NEXT, OLD, CURRENT] }), [CHAT, DECIDE], NOW);
  t.strictSame(list.tariff(CHAT, NOW), {
    version: '2026-10-03.4',
    rates: { input: 150_000n, cachedInput: 75_000n, output: 600_000n },
  });
  t.match(list.tariff(DECIDE, NOW), { version: '2026-10-03.4', rates: { input: 42_000n, cachedInput: 42_000n } });
  const change = Date.parse(NEXT.effective);
  t.equal(list.tariff(DECIDE, change - 1).version, '2026-10-03.4');
  t.strictSame(list.tariff(DECIDE, change), {
    version: '2027-01-01.1',
    rates: { input: 50_000n, cachedInput: 50_000n, output: 0n },
  });
  t.equal(list.tariff(DECIDE, Date.parse(CURRENT.effective) - 1).version, '2026-01-01.1');
});

t.test('a tier has the rates of its version, or is not sold', async (t) => {
  const sold = { ...LARGE, tiers: { flex: { input: '0.1', cachedInput: '0', output: '0.3' } } };
  const list = await readPriceFile(
    await file(t, { version: 1, prices: [{ ...CURRENT, chat: { large: sold } }, NEXT] }),
    [CHAT],
    NOW,
  );
  t.strictSame(list.tierTariff('large', 'flex', NOW), {
    version: '2026-10-03.4',
    rates: { input: 100_000n, cachedInput: 0n, output: 300_000n },
  });
  t.match(list.tariff(CHAT, NOW), { rates: { input: 150_000n } });
  t.equal(list.tierTariff('large', 'priority', NOW), undefined);
  t.equal(list.tierTariff('large', 'flex', Date.parse(NEXT.effective)), undefined, 'not any more');
  t.equal(list.ratesOf({ ...CHAT, tier: 'flex' }, NEXT.version), undefined);
  t.equal(BUILT_IN_PRICES.tierTariff('large', 'flex', NOW), undefined, 'what is free is not sold in tiers');
});

t.test('a version may come into force on a leap day', async (t) => {
  const leap = { ...NEXT, effective: '2028-02-29T00:00:00Z' };
  const list = await readPriceFile(await file(t, { version: 1, prices: [CURRENT, leap] }), [CHAT, DECIDE], NOW);
  t.equal(list.tariff(DECIDE, Date.parse(leap.effective)).version, leap.version);
});

t.test('prices that cannot be charged exactly are refused, with their place', async (t) => {
  const priced = (change: object): object => ({ version: 1, prices: [{ ...CURRENT, ...change }] });
  for (const [content, line] of [
    ['{', /is not JSON/],
    [
      JSON.stringify({ version: 1, prices: [CURRENT] }).replace('"decisions"', '\n"version":"other","decisions"'),
      /repeats a name within one object, on line 2 /,
    ],
    [{ version: 2, prices: [CURRENT] }, /version must be 1/],
    [{ version: 1, prices: [] }, /prices must have at least 1 item/],
    [priced({ decisions: 0.042 }), /prices\[0\]\.decisions must be a string/],
    [priced({ decisions: '0.0000001' }), /prices\[0\]\.decisions must be USD per million tokens/],
    [priced({ decisions: '-1' }), /prices\[0\]\.decisions must be/],
    [priced({ chat: { large: { ...LARGE, output: '1e3' } } }), /prices\[0\]\.chat\.large\.output must be/],
    [priced({ chat: { large: { input: '1', output: '1' } } }), /prices\[0\]\.chat\.large\.cachedInput is required/],
    [
      priced({ chat: { large: { ...LARGE, tiers: { flex: LARGE, gold: LARGE } } } }),
      /tiers\.gold is not a known field/,
    ],
    [
      priced({ chat: { large: { ...LARGE, tiers: { flex: { ...LARGE, input: '-1' } } } } }),
      /prices\[0\]\.chat\.large\.tiers\.flex\.input must be/,
    ],
    [priced({ chat: {} }), /version 2026-10-03\.4 has no price for the model large/],
    [priced({ rate: '1' }), /prices\[0\]\.rate is not a known field/],
    [priced({ effective: '2026-13-01T00:00:00Z' }), /prices\[0\]\.effective is a time that does not exist/],
    [priced({ effective: '2026-06-31T00:00:00Z' }), /prices\[0\]\.effective is a time that does not exist/],
    [priced({ effective: '2026-02-29T00:00:00Z' }), /prices\[0\]\.effective is a time that does not exist/],
    [priced({ effective: NEXT.effective }), /no version is in force yet/],
    [
      { version: 1, prices: [CURRENT, { ...NEXT, chat: {} }] },
      /version 2027-01-01\.1 has no price for the model large/,
    ],
    [{ version: 1, prices: [CURRENT, { ...NEXT, version: CURRENT.version }] }, /two of prices have one version/],
    [{ version: 1, prices: [CURRENT, { ...NEXT, effective: CURRENT.effective }] }, /two of prices have one effective/],
  ] as const) {
    const path = await file(t, content);
    const error: unknown = await readPriceFile(path, [CHAT, DECIDE], NOW).catch((thrown: unknown) => thrown);
    t.ok(error instanceof FileProblem, String(line));
    t.match(error, { message: line });
    t.match(error, { message: /^pricing: .* \(file .*prices\.json\)$/ });
  }
  await t.rejects(readPriceFile('/nowhere', [], NOW), { message: 'pricing: cannot be read: ENOENT (file /nowhere)' });
});
