import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EventEmitter, once } from 'node:events';
import t, { type Test } from 'tap';
import { CreditFileError, readCreditFile } from '../../../sidecar/access/credit-file.js';
import { CreditWatch } from '../../../sidecar/access/credit-watch.js';
import { FakeClock } from '../../support/fake-clock.js';

const POLL_MS = 1000;

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-credit-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Replaces the file as an operator should: whole, by rename. */
async function put(file: string, content: unknown): Promise<void> {
  await writeFile(`${file}.new`, typeof content === 'string' ? content : JSON.stringify(content));
  await rename(`${file}.new`, file);
}

function grants(...usd: string[]): object {
  return { version: 1, accounts: { acme: usd.map((amount, i) => ({ id: `g${i}`, usd: amount })) } };
}

t.test('an account has the sum of its grants', async (t) => {
  const file = join(await folder(t), 'credit.json');
  await put(file, {
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
    await readCreditFile(file),
    new Map([
      ['acme', 20_000_000_000_001n],
      ['empty', 0n],
    ]),
  );
});

t.test('what cannot be read exactly is refused, and said where', async (t) => {
  const file = join(await folder(t), 'credit.json');
  for (const [content, line] of [
    ['{', /is not JSON/],
    [{ version: 1 }, /accounts is required/],
    [{ version: 1, accounts: { acme: [{ id: 'g', usd: 25 }] } }, /accounts\.acme\[0\]\.usd must be a string/],
    [grants('0.0000000000001'), /grant g0: usd must be dollars/],
    [grants('1e3'), /grant g0: usd must be dollars/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1' }], b: [{ id: 'g', usd: '1' }] } }, /two grants have the id g/],
    [{ version: 1, accounts: { a: [{ id: 'g', usd: '1', by: 'me' }] } }, /accounts\.a\[0\]\.by is not a known field/],
  ] as const) {
    await put(file, content);
    const error: unknown = await readCreditFile(file).catch((thrown: unknown) => thrown);
    t.ok(error instanceof CreditFileError, String(line));
    t.match(error, { message: line });
  }
});

t.test('a top-up counts without a restart, and a broken file leaves the last good grants', async (t) => {
  const file = join(await folder(t), 'credit.json');
  await put(file, grants('1'));
  const clock = new FakeClock();
  const news = new EventEmitter();
  const { watch, granted } = await CreditWatch.open({
    clock,
    file,
    pollMs: POLL_MS,
    onChange: (changed) => news.emit('change', changed),
    onBad: (line) => news.emit('bad', line),
  });
  t.strictSame(granted, new Map([['acme', 1_000_000_000_000n]]));

  const next = async (event: string): Promise<unknown> => {
    const told = once(news, event);
    clock.advance(POLL_MS);
    return ((await told) as unknown[])[0];
  };
  await put(file, grants('1', '2.5'));
  t.strictSame(await next('change'), new Map([['acme', 3_500_000_000_000n]]));
  await put(file, '{');
  t.match(await next('bad'), /^credit: is not JSON/);
  await rm(file);
  t.match(await next('bad'), /^credit: cannot be read: ENOENT/);
  await put(file, grants('4'));
  t.strictSame(await next('change'), new Map([['acme', 4_000_000_000_000n]]));

  watch.close();
  watch.close();
  t.equal(clock.pending, 0);
});

t.test('an unchanged file is not read again', async (t) => {
  const file = join(await folder(t), 'credit.json');
  await put(file, grants('1'));
  const clock = new FakeClock();
  const told: unknown[] = [];
  const { watch } = await CreditWatch.open({
    clock,
    file,
    pollMs: POLL_MS,
    onChange: (changed) => told.push(changed),
    onBad: (line) => told.push(line),
  });
  t.teardown(() => watch.close());
  for (let look = 0; look < 3; look += 1) {
    clock.advance(POLL_MS);
    // The next timer is set once a look is over.
    while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  t.strictSame(told, []);
});

t.test('a start without a usable file fails and watches nothing', async (t) => {
  const clock = new FakeClock();
  const options = { clock, pollMs: POLL_MS, onChange: () => undefined, onBad: () => undefined };
  await t.rejects(CreditWatch.open({ ...options, file: join(await folder(t), 'none.json') }), {
    message: /^credit: cannot be read: ENOENT/,
  });
  t.equal(clock.pending, 0);
});
