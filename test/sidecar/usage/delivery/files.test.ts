import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { usageEvent, type CloseRecord } from '../../../../sidecar/usage/delivery/sink.js';
import { buryIn, CursorFile, type DeadLetter } from '../../../../sidecar/usage/delivery/files.js';
import { FileProblem } from '../../../../sidecar/lib/checked-file.js';
import { readBearerToken } from '../../../../sidecar/lib/secret-file.js';
import { usageRecord } from '../../../support/usage-records.js';

const AT = '2026-10-03T00:00:00.000Z';

function letter(id: string): DeadLetter {
  return { at: AT, status: 400, event: usageEvent(usageRecord(id, 'close') as CloseRecord, '/test') };
}

t.test('the cursor is read as it was saved', async (t) => {
  const file = join(t.testdir(), 'usage', 'cursor.json');
  t.strictSame(await new CursorFile(file).load(), { kind: 'none' });
  for (const position of [
    { segment: 1, offset: 0 },
    { segment: 12, offset: 345 },
  ]) {
    await new CursorFile(file).save(position);
    t.strictSame(await new CursorFile(file).load(), { kind: 'at', position });
  }
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.notOk(existsSync(`${file}.tmp`));
});

t.test('a cursor that a crash left half written is ignored', async (t) => {
  const file = join(t.testdir(), 'cursor.json');
  await new CursorFile(file).save({ segment: 3, offset: 7 });
  writeFileSync(`${file}.tmp`, '{"version":1,"seg');
  t.strictSame(await new CursorFile(file).load(), { kind: 'at', position: { segment: 3, offset: 7 } });
  await new CursorFile(file).save({ segment: 3, offset: 8 });
  t.strictSame(await new CursorFile(file).load(), { kind: 'at', position: { segment: 3, offset: 8 } });
});

t.test('an invalid cursor is lost; a failing disk is a fault', async (t) => {
  const file = join(t.testdir(), 'cursor.json');
  for (const text of [
    ...['', '{', 'null', '[]', '{"version":1}', '{"version":2,"segment":1,"offset":0}'],
    ...['{"version":1,"segment":-1,"offset":0}', '{"version":1,"segment":1,"offset":0.5}'],
  ]) {
    writeFileSync(file, text);
    t.strictSame(await new CursorFile(file).load(), { kind: 'lost', why: 'unreadable' }, text);
  }
  rmSync(file);
  mkdirSync(file);
  await t.rejects(new CursorFile(file).load(), { code: 'EISDIR' });
  await t.rejects(new CursorFile(file).save({ segment: 1, offset: 1 }), { message: /rename/ });
});

t.test('dead letters are JSON lines; a removed file or half a line does not prevent more', async (t) => {
  const file = join(t.testdir(), 'usage', 'dead-letters.jsonl');
  const bury = buryIn(file, 1_000_000);
  t.equal(await bury([letter('a'), letter('b')]), true);
  t.equal(await bury([letter('c')]), true);
  const lines = (): unknown[] =>
    readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  t.strictSame(lines(), ['a', 'b', 'c'].map(letter));
  t.equal(statSync(file).mode & 0o777, 0o600);

  rmSync(file);
  await bury([letter('d')]);
  t.strictSame(lines(), [letter('d')]);

  appendFileSync(file, '{"at":"2026');
  await bury([letter('e')]);
  const text = readFileSync(file, 'utf8').split('\n');
  t.strictSame(JSON.parse(text[2] ?? ''), letter('e'));
});

t.test('dead letters have a bound, and a failing disk is a fault', async (t) => {
  const dir = t.testdir();
  const file = join(dir, 'dead-letters.jsonl');
  const bytes = JSON.stringify(letter('a')).length + 1;
  const bury = buryIn(file, 2 * bytes);
  t.equal(await bury([letter('a'), letter('b')]), true);
  t.equal(await bury([letter('c')]), false);
  t.equal(statSync(file).size, 2 * bytes, 'nothing was written');
  mkdirSync(join(dir, 'folder'));
  await t.rejects(buryIn(join(dir, 'folder'), 100)([letter('a')]), { code: 'EISDIR' });
});

t.test('a secret is the one token in its file', async (t) => {
  const file = join(t.testdir(), 'secret');
  for (const [text, secret] of [
    ['abc', 'abc'],
    ['  ey.J-a_b~c+/==\n', 'ey.J-a_b~c+/=='],
  ] as const) {
    writeFileSync(file, text);
    t.equal(await readBearerToken(file), secret);
  }
  for (const [text, problem] of [
    ...['', '\n', 'two tokens', 'a\nb', 'naïve'].map(
      (bad) => [bad, 'must hold one bearer token and nothing else'] as const,
    ),
    ['x'.repeat(5000), 'is longer than 4096 bytes'],
  ] as const) {
    writeFileSync(file, text);
    const error: unknown = await readBearerToken(file).catch((thrown: unknown) => thrown);
    t.type(error, FileProblem);
    t.equal((error as Error).message, `delivery.secretFile: ${problem} (file ${file})`, 'it does not quote the file');
  }
  await t.rejects(readBearerToken(`${file}.none`), { message: /^delivery\.secretFile: does not exist/ });
});
