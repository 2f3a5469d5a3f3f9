import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import t from 'tap';
import { CREDIT, type Granted } from '../../../sidecar/access/credit.js';
import { KEYS, type KeyFile } from '../../../sidecar/access/key-file.js';
import { readLarge, type Gathering } from '../../../sidecar/access/large-file.js';
import { readChecked } from '../../../sidecar/lib/checked-file.js';
import { makeKey } from '../../support/keys.js';

/** Many more than one part has, in a file that is too long to be read on the event loop. */
const ENTRIES = 3000;

/** Records each part with the turn of the event loop in which it came. */
class Parts<T> implements Gathering<T> {
  readonly all: T[] = [];
  readonly turns = new Set<number>();
  #turn = 0;

  add(part: T): void {
    this.all.push(part);
    this.turns.add(this.#turn);
    setImmediate(() => (this.#turn += 1));
  }
}

function creditText(entries: number, first = 'account-0'): string {
  const accounts = Array.from(
    { length: entries },
    (_, i) => `${JSON.stringify(i === 0 ? first : `account-${i}`)}:[{"id":"invoice-${i}","usd":"${i}"}]`,
  );
  return `{"version":1,"accounts":{${accounts.join()}}}`;
}

t.test('the event loop turns between the parts of a long credit file, which are all of it', async (t) => {
  const file = join(t.testdir({ credit: creditText(ENTRIES) }), 'credit');
  const parts = new Parts<Granted>();
  const found = await readLarge(file, CREDIT, parts);
  t.match(found, { kind: 'good', value: parts });
  t.ok(parts.all.length > 2, `${parts.all.length} parts`);
  t.equal(parts.turns.size, parts.all.length, 'each in a turn of its own');
  const granted = new Map(parts.all.flatMap((part) => [...part]));
  t.strictSame(granted, CREDIT.parse(creditText(ENTRIES), file));

  t.equal(found.sign, (await readChecked(file, CREDIT)).sign, 'its sign is that of its content');
});

t.test('the parts of a long keys file say of an account what the whole one says', async (t) => {
  const keys = Array.from({ length: ENTRIES }, (_, i) => makeKey({ id: `key-${i}`, account: `a${i % 3}` }).stored);
  const accounts = { a1: { frozen: true }, a2: { frozen: false }, other: { frozen: true } };
  const file = join(t.testdir({ keys: JSON.stringify({ version: 1, accounts, keys }) }), 'keys');
  const parts = new Parts<KeyFile>();
  t.match(await readLarge(file, KEYS, parts), { kind: 'good' });
  t.strictSame(
    parts.all.flatMap((part) => part.keys),
    keys,
  );
  t.equal(parts.turns.size, parts.all.length);
  for (const part of parts.all) t.strictSame(part.accounts, { a1: { frozen: true }, a2: { frozen: false } });
});

t.test('of a file that cannot be used nothing is added, and the problem is the same for a long one', async (t) => {
  const unused: Gathering<Granted> = { add: () => t.fail('a part was added') };
  for (const [entries, problem] of [
    [3, /^repeats a name within one object, on line 1$/],
    [ENTRIES, /^repeats a name within one object, on line 1$/],
  ] as const) {
    const file = join(t.testdir({ credit: creditText(entries, 'account-1') }), 'credit');
    const found = await readLarge(file, CREDIT, unused);
    t.match(found, { kind: 'bad', problem: { problem, message: `(file ${file})` } }, `${entries} entries`);
  }
  const missing = await readLarge(join(t.testdir(), 'credit'), CREDIT, unused);
  t.match(missing, { kind: 'bad', sign: 'none', problem: { problem: 'does not exist' } });
});

t.test('a thread that fails is a problem of the file', async (t) => {
  const file = join(t.testdir({ credit: creditText(ENTRIES) }), 'credit');
  const found = await readLarge(file, { ...CREDIT, what: 'unknown' }, { add: () => t.fail('a part was added') });
  t.match(found, { kind: 'bad', problem: { problem: 'cannot be read: the thread failed' } });
});

t.test('so is a thread that cannot be started, as without a descriptor', async (t) => {
  const file = join(t.testdir({ credit: creditText(ENTRIES) }), 'credit');
  const program = `
    import { openSync } from 'node:fs';
    const { CREDIT } = await import('${new URL('../../../sidecar/access/credit.js', import.meta.url).href}');
    const { readLarge } = await import('${new URL('../../../sidecar/access/large-file.js', import.meta.url).href}');
    try { for (;;) openSync('/dev/null'); } catch {}
    const { kind, problem } = await readLarge(process.argv[1], CREDIT, { add: () => undefined });
    process.stdout.write(kind + ' ' + problem.problem);
  `;
  const node = [process.execPath, '--input-type=module', '-e', program, file];
  const said = execFileSync('sh', ['-c', 'unset NODE_OPTIONS; ulimit -n 100 && exec "$@"', 'sh', ...node], {
    encoding: 'utf8',
  });
  t.equal(said, 'bad cannot be read: ERR_WORKER_INIT_FAILED');
});
