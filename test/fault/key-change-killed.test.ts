/** SIGKILL while an operator changes keys over HTTP: the keys file is whole, and what was changed is in the audit. */
import { once } from 'node:events';
import { readFile, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { readKeyFile } from '../../sidecar/access/key-file.js';
import { emptyKeys, KeyOperator } from '../support/key-operator.js';
import { rounds } from '../support/long-form.js';

/** Rounds: each one ends at another size of the audit, in another place of a change. */
const ROUNDS = rounds({ short: 3, long: 6 });

async function sizeOf(file: string): Promise<number> {
  return await stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}

t.test('killed between the line of the audit and the answer', async (t) => {
  const dir = await emptyKeys(t.testdir());
  const file = join(dir, 'keys.json');
  const audit = join(dir, 'audit.jsonl');
  const answered = new Set<string>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const { at, child } = await KeyOperator.fork(dir, file);
    const before = await sizeOf(audit);
    const sent = Array.from({ length: 8 }, async () => {
      const { status, body } = await at.post('/keys', { account: `round${round}` });
      if (status === 201) answered.add(body.id);
    });
    // The line is in the file; its change, and the answer, may still be to come.
    for (let lines = 0; lines <= round; lines += 1) {
      const seen = await sizeOf(audit);
      while ((await sizeOf(audit)) === (lines === 0 ? before : seen)) await new Promise(setImmediate);
    }
    child.kill('SIGKILL');
    await Promise.all([once(child, 'exit'), Promise.allSettled(sent)]);

    const { keys } = await readKeyFile(file);
    const lines = (await readFile(audit, 'utf8')).trim().split('\n');
    const recorded = new Set(lines.map((line) => (JSON.parse(line) as { id: string }).id));
    t.strictSame(
      keys.filter(({ id }) => !recorded.has(id)),
      [],
      'no change without its line',
    );
    const ids = new Set(keys.map(({ id }) => id));
    t.strictSame(
      [...answered].filter((id) => !ids.has(id)),
      [],
      'what was answered is in the file',
    );
    t.ok(recorded.size - ids.size <= round + 1, 'at most one line a kill has no change');
    // The next process breaks a lock that is this old, and would wait 10 s for a new one.
    await utimes(`${file}.lock`, 0, 0).catch(() => undefined);
  }
  t.ok(answered.size > 0);
});
