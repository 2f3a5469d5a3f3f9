import t from 'tap';
import { parseCreditFile } from '../../../sidecar/access/credit-file.js';
import { FileProblem } from '../../../sidecar/lib/checked-file.js';

const FILE = 'credit.json';

function parse(content: unknown): ReadonlyMap<string, bigint> {
  return parseCreditFile(typeof content === 'string' ? content : JSON.stringify(content), FILE);
}

function grants(...usd: string[]): object {
  return { version: 1, accounts: { acme: usd.map((amount, i) => ({ id: `g${i}`, usd: amount })) } };
}

t.test('an account has the sum of its grants', async (t) => {
  const granted = parse({
    version: 1,
    accounts: {
      acme: [
        { id: 'inv-1', usd: '25.00', at: '2026-10-03T00:00:00Z' },
        { id: 'inv-2', usd: '0.000000000001' },
        { id: 'back-1', usd: '-5' },
      ],
      empty: [],
    },
  });
  t.strictSame(
    granted,
    new Map([
      ['acme', 20_000_000_000_001n],
      ['empty', 0n],
    ]),
  );
});

t.test('amounts that cannot be read exactly are refused, with their place', async (t) => {
  for (const [content, line] of [
    ['{', /is not JSON/],
    [
      '{"version":1,"accounts":{\n"acme":[{"id":"g","usd":"25"}],\n"beta":[],\n"acme":[]}}',
      /repeats a name within one object, on line 4 /,
    ],
    [{ version: 1 }, /accounts is required/],
    [{ version: 1, accounts: { acme: [{ id: 'g', usd: 25 }] } }, /accounts\.acme\[0\]\.usd must be a string/],
    [grants('0.0000000000001'), /grant g0: usd must be dollars/],
    [grants('1e3'), /grant g0: usd must be dollars/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1' }], b: [{ id: 'g', usd: '1' }] } }, /two grants have the id g/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1', by: 'me' }] } }, /accounts\.a\[0\]\.by is not a known field/],
  ] as const) {
    t.throws(() => parse(content), FileProblem, String(line));
    t.throws(() => parse(content), { message: line });
  }
});
