import { randomBytes } from 'node:crypto';
import { appendFile, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { DamagedPieces, PieceFile, type PieceHead } from '../../../sidecar/batch/pieces.js';
import { NO_TOKENS } from '../../../sidecar/domain/money.js';

const KEY = randomBytes(32);

function fileIn(t: Test): string {
  return join(t.testdir(), 'file');
}

async function contentOf(file: PieceFile, expected?: number): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of file.contents(expected)) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString();
}

async function reopened(path: string): Promise<{ file: PieceFile; heads: PieceHead[]; damage: number }> {
  const heads: PieceHead[] = [];
  let damage = 0;
  const file = await PieceFile.continue(path, KEY, (head, isDamaged) => {
    if (isDamaged) damage += 1;
    else if (head) heads.push(head);
  });
  await file.repair();
  return { file, heads, damage };
}

function piece(text: string, line = 0): Parameters<PieceFile['append']>[0][number] {
  const used = { promptTokens: line, cachedTokens: 1, completionTokens: 2 };
  const facts = { line, attempt: '01234567-89ab-4def-8123-456789abcdef', used, picodollars: 2n ** 60n };
  return { content: Buffer.from(text), state: 'written', ...(line > 0 && { facts }) };
}

t.test('what was appended is read again, with its facts, and is not on the disk in plain', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  const big = 'large '.repeat(100_000);
  await file.append([piece('first '), piece('second ', 7)]);
  await file.append([piece(big)]);
  t.equal(await contentOf(file), `first second ${big}`);
  t.equal(file.contentBytes, 13 + big.length);
  await file.close();
  t.notOk((await readFile(path)).includes('large'));
  const { file: again, heads } = await reopened(path);
  t.match(heads, [
    { line: 0, attempt: '', used: NO_TOKENS, picodollars: 0n },
    { line: 7, attempt: '01234567-89ab-4def-8123-456789abcdef', picodollars: 2n ** 60n, used: { promptTokens: 7 } },
    { index: 2, length: big.length },
  ]);
  await again.append([piece('end')]);
  t.equal(await contentOf(again, 16 + big.length), `first second ${big}end`);
  await t.rejects(contentOf(again, 17 + big.length), DamagedPieces, 'a file that should have more');
  await again.close();
});

t.test('void pieces are skipped, also after a reopening', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  const [, second = 0] = await file.append([piece('a'), piece('b'), piece('c')]);
  await file.mark([{ offset: second, length: 1 }], 'void');
  t.equal(await contentOf(file, 2), 'ac');
  await file.close();
  const { file: again, heads } = await reopened(path);
  t.same(
    heads.map(({ state }) => state),
    ['written', 'void', 'written'],
  );
  t.equal(again.contentBytes, 2);
  await again.close();
});

t.test('wherever a crash cuts the file, its complete pieces stay', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  await file.append([piece('a')]);
  const { size: first } = await stat(path);
  await file.append([piece('bb')]);
  await file.close();
  const whole = await readFile(path);
  for (let cut = first; cut < whole.length; cut += 1) {
    await writeFile(path, whole);
    await truncate(path, cut);
    const { file: again, heads } = await reopened(path);
    t.equal(heads.length, 1);
    await again.append([piece('z')]);
    t.equal(await contentOf(again, 2), 'az');
    await again.close();
  }
});

t.test('whatever is damaged, the pieces before and after it stay', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  const texts = ['one', 'two two', 'three', 'four'];
  const offsets = await file.append(texts.map((text, i) => piece(text, i + 1)));
  await file.close();
  const whole = await readFile(path);
  const [, second = 0, third = 0, fourth = 0] = offsets;
  const damaged = async (from: number, to: number, expected: string): Promise<void> => {
    await writeFile(path, Buffer.from(whole.map((byte, at) => (at >= from && at < to ? byte ^ 0x80 : byte))));
    const { file: again, damage } = await reopened(path);
    t.equal(damage, 1, `bytes ${from} to ${to}`);
    await again.append([piece('end', 5)]);
    t.equal(await contentOf(again, expected.length + 3), `${expected}end`);
    await again.close();
    const { file: third, damage: left } = await reopened(path);
    t.equal(left, 0, 'it is found once');
    t.equal(third.contentBytes, expected.length + 3);
    await third.close();
  };
  for (let at = second; at < third; at += 1) await damaged(at, at + 1, 'onethreefour');
  await damaged(second, fourth, 'onefour');
  await damaged(0, second + 70, 'threefour');
  await damaged(fourth + 70, fourth + 71, 'onetwo twothree');
});

t.test('a damaged file is as it was until it is repaired', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  const [, second = 0] = await file.append([piece('one', 1), piece('two', 2), piece('three', 3)]);
  await file.close();
  const bytes = await readFile(path);
  bytes[second + 1] = 0x80;
  await writeFile(path, Buffer.concat([bytes, Buffer.from('torn')]));
  const damaged = await readFile(path);
  for (let i = 0; i < 2; i += 1) {
    let damage = 0;
    const found = await PieceFile.continue(path, KEY, (_head, isDamaged) => (damage += Number(isDamaged)));
    t.equal(damage, 1);
    t.equal(found.contentBytes, 8);
    await found.close();
  }
  t.ok((await readFile(path)).equals(damaged));
  await (await reopened(path)).file.close();
  t.notOk((await readFile(path)).equals(damaged));
});

t.test('of a write that failed nothing is read, also behind a shorter one', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  await file.append([piece('a', 1)]);
  const sync = file.sync.bind(file);
  file.sync = () => Promise.reject(new Error('EIO'));
  await t.rejects(file.append([piece('long', 2), piece('b', 3)]), /EIO/);
  file.sync = sync;
  const { length } = await readFile(path);
  await file.append([piece('c', 4)]);
  t.ok((await readFile(path)).length < length);
  // No more: the process is gone.
  await file.close();
  const { file: again, heads, damage } = await reopened(path);
  t.same(
    heads.map(({ line }) => line),
    [1, 4],
  );
  t.equal(damage, 0);
  t.equal(await contentOf(again, 2), 'ac');
  await again.close();
});

t.test('a changed byte, another order or another key is found', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  await file.append([piece('aaaa'), piece('bbbb')]);
  await file.close();
  const whole = await readFile(path);
  const opened = async (bytes: Buffer, key = KEY): Promise<unknown> => {
    await writeFile(path, bytes);
    const read = await PieceFile.read(path, key);
    return await contentOf(read, 8).finally(() => read.close());
  };
  t.equal(await opened(whole), 'aaaabbbb');
  for (const at of [8, 12, 24, 32, 48, 60, 64, 70]) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ 1;
    await t.rejects(opened(changed), DamagedPieces, `byte ${at}`);
  }
  const half = whole.length / 2;
  await t.rejects(opened(Buffer.concat([whole.subarray(half), whole.subarray(0, half)])), DamagedPieces);
  await t.rejects(opened(whole, randomBytes(32)), DamagedPieces);
});

t.test('of a file that is deleted no further piece is read', async (t) => {
  const file = await PieceFile.create(fileIn(t), KEY);
  await file.append([piece('aaaa'), piece('bbbb')]);
  let there = true;
  const parts: string[] = [];
  const read = async (): Promise<void> => {
    for await (const part of file.contents(8, () => there)) {
      parts.push(part.toString());
      there = false;
    }
  };
  await t.rejects(read(), DamagedPieces);
  t.same(parts, ['aaaa']);
  await file.close();
});

t.test('what a failed append left behind the end is cut off', async (t) => {
  const path = fileIn(t);
  const file = await PieceFile.create(path, KEY);
  await file.append([piece('a')]);
  await appendFile(path, 'rubbish');
  await file.finish();
  t.equal(await contentOf(file, 1), 'a');
  t.equal((await stat(path)).size, 64 + 1 + 16);
  await file.close();
});
