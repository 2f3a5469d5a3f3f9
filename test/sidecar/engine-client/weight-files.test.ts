import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { chmod, copyFile, readFile, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { fileKey, partsOf, sizeIn, writtenInPlace } from '../../../engine/protocol/file-key.js';
import type { Clock } from '../../../sidecar/lib/clock.js';
import { FakeClock } from '../../support/fake-clock.js';
import { eventually } from '../../support/processes.js';
import {
  sameWeights,
  WeightFiles,
  type Hashed,
  readWeights,
  type Content,
  type WeightReader,
} from '../../../sidecar/engine-client/weight-files.js';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const SILENCE_MS = 60_000;
const SILENT = 'nothing of it could be read for 60 s, as if its file system did not answer';

/** A reader whose thread ends once it is closed, on the key that the file has. `hash`: its content. */
function reader(file: string, hash: () => Promise<string>): WeightReader {
  let end = (): void => undefined;
  const ended = new Promise<void>((settle) => (end = settle));
  const content = async (): Promise<Content> => ({ version: await hash(), key: fileKey(file) });
  return { found: Promise.resolve(fileKey(file)), ended, content, close: () => end() };
}

/** Its text; empty if it is not there. */
function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** A thread's module. */
function thread(code: string): URL {
  const imports = `import { parentPort } from 'node:worker_threads';`;
  return new URL(`data:text/javascript,${encodeURIComponent(imports + code)}`);
}

const turns = async (): Promise<void> => {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
};

t.test('a file is hashed once, by all who ask, until it changes', async (t) => {
  const dir = t.testdir({ a: 'one' });
  const path = join(dir, 'a');
  let reads = 0;
  const files = new WeightFiles(SILENCE_MS, new FakeClock(), (file) =>
    reader(file, async () => {
      reads += 1;
      return sha256(await readFile(file, 'utf8'));
    }),
  );
  await symlink(path, join(dir, 'b'));
  const [first, second, third] = await Promise.all([files.of(path), files.of(path), files.of(join(dir, 'b'))]);
  t.equal(first, second);
  t.same(third, first, 'also by another path');
  t.match(await files.of(path), { kind: 'hashed', file: { version: sha256('one') } });
  t.equal(reads, 1);
  await writeFile(path, 'two');
  t.match(await files.of(path), { file: { version: sha256('two') } });
  t.equal(reads, 2);
  t.same(await files.of(join(dir, 'none')), { kind: 'unread', why: 'cannot be read' });
});

t.test('hashes are kept for the next start, which reads nothing of a file that is known', async (t) => {
  const dir = t.testdir({ data: {}, a: 'one', b: 'two' });
  const [a, b, keptIn] = [join(dir, 'a'), join(dir, 'b'), join(dir, 'data', 'weights.json')];
  const reads: string[] = [];
  const clock = new FakeClock();
  const start = (): WeightFiles =>
    new WeightFiles(
      SILENCE_MS,
      clock,
      (file) => {
        reads.push(`looks at ${file}`);
        return reader(file, async () => {
          reads.push(`reads ${file}`);
          return sha256(await readFile(file, 'utf8'));
        });
      },
      keptIn,
    );
  // Attributes of a file that was not changed for long, as no test can set them.
  const settled = (file: string): string => (fileKey(file) ?? '').replace(/:\d+:\d+$/, ':1:2');
  const old = new Map([a, b].map((file) => [file, settled(file)]));
  const files = new WeightFiles(
    SILENCE_MS,
    clock,
    (file) => ({
      ...reader(file, () => Promise.resolve('')),
      found: Promise.resolve(old.get(file)),
      content: async () => ({ version: sha256(await readFile(file, 'utf8')), key: old.get(file) }),
    }),
    keptIn,
  );
  await Promise.all([files.of(a), files.of(b)]);
  await eventually('both are kept', () => /:1:2".*:1:2"/.test(readIfThere(keptIn)));

  const known = { kind: 'hashed', file: { key: old.get(a), version: sha256('one') } };
  t.same(await start().of(a, old.get(a)), known);
  t.strictSame(reads, []);
  t.match(
    await start().of(a, fileKey(a)),
    { file: { key: fileKey(a), version: sha256('one') } },
    'of another key it is read',
  );
  t.strictSame(reads, [`looks at ${a}`, `reads ${a}`]);
  t.notMatch(
    readIfThere(keptIn),
    fileKey(a) ?? '',
    'a file that was just changed may change again in the same tick: not kept',
  );
  await writeFile(keptIn, '{"hashes":{"k":"no hash"');
  t.match(await start().of(a, old.get(a)), { kind: 'hashed' }, 'a damaged file is none');
  t.equal(reads.length, 4);
});

t.test('in a thread, and not what is no file or changes meanwhile', async (t) => {
  const dir = t.testdir({ a: 'one' });
  const path = join(dir, 'a');
  const files = new WeightFiles(SILENCE_MS);
  const key = fileKey(path);
  t.same(await files.of(path), { kind: 'hashed', file: { key, version: sha256('one') } });
  t.same(await files.of(path), { kind: 'hashed', file: { key, version: sha256('one') } }, 'known');
  t.match(await files.of(dir), { kind: 'unread', why: /^cannot be read: / });
  t.same(await files.of(join(dir, 'none')), { kind: 'unread', why: 'cannot be read' });
  const changing = new WeightFiles(SILENCE_MS, new FakeClock(), (file) =>
    reader(file, async () => {
      await writeFile(file, 'longer');
      return 'x';
    }),
  );
  t.same(await changing.of(path), { kind: 'unread', why: 'changed while it was read' });
});

t.test('a thread that reads nothing for too long is given up', async (t) => {
  const clock = new FakeClock();
  const silent = readWeights(
    '/a',
    clock,
    SILENCE_MS,
    thread('Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);'),
  );
  clock.advance(SILENCE_MS);
  await t.rejects(silent.found, { message: SILENT });
  silent.close();
  await silent.ended;
  const found = `parentPort.postMessage({ kind: 'found', key: 'k' }); parentPort.once('message', () => undefined);`;
  const later = readWeights('/a', clock, SILENCE_MS, thread(found));
  t.equal(await later.found, 'k');
  clock.advance(SILENCE_MS);
  const content = later.content();
  clock.advance(SILENCE_MS - 1);
  t.equal(clock.pending, 1);
  clock.advance(1);
  await t.rejects(content, { message: SILENT });
  later.close();
  await later.ended;
  t.equal(clock.pending, 0);
});

t.test('a call that joins the reading of a file since replaced gets the new file', async (t) => {
  const dir = t.testdir({ a: 'one', b: 'two' });
  const a = join(dir, 'a');
  const begun: ((version: string) => void)[] = [];
  const files = new WeightFiles(SILENCE_MS, new FakeClock(), (file) =>
    reader(file, () => new Promise((settle) => begun.push(settle))),
  );
  const first = files.of(a);
  await turns();
  await rename(join(dir, 'b'), a);
  const joined = [files.of(a), files.of(a)];
  begun[0]?.('one');
  t.same(await first, { kind: 'unread', why: 'changed while it was read' });
  await turns();
  begun[1]?.('two');
  const now = { kind: 'hashed', file: { key: fileKey(a), version: 'two' } };
  t.same(await Promise.all(joined), [now, now]);
  t.equal(begun.length, 2, 'read once more, for both');
});

t.test('a file is unread where no thread can be created', async (t) => {
  const files = new WeightFiles(SILENCE_MS, new FakeClock(), () => {
    throw new Error('Worker initialization failure: EAGAIN');
  });
  t.same(await files.of('/a'), { kind: 'unread', why: 'cannot be read: Worker initialization failure: EAGAIN' });
});

t.test('no other thread joins a read that does not end, until its path may lead elsewhere', async (t) => {
  const clock = new FakeClock();
  const ends: (() => void)[] = [];
  const files = new WeightFiles(SILENCE_MS, clock, () => {
    const ended = new Promise<void>((settle) => ends.push(settle));
    const found = Promise.reject(new Error(SILENT));
    return { found, ended, content: () => Promise.reject(new Error('not called')), close: () => undefined };
  });
  const unread = { kind: 'unread', why: `cannot be read: ${SILENT}` };
  t.same(await files.of('/a'), unread);
  await turns();
  t.same(await files.of('/a'), unread, 'at once');
  t.equal(ends.length, 1);
  ends[0]?.();
  await turns();
  t.same(await files.of('/a'), unread);
  t.equal(ends.length, 2, 'it has ended');
  for (let call = 0; call < 8; call += 1) {
    await turns();
    clock.advance(SILENCE_MS);
    await turns();
    t.same(await files.of('/a'), unread);
  }
  t.equal(ends.length, 6, 'five that have not');
  ends[5]?.();
  await turns();
  await files.of('/a');
  t.equal(ends.length, 7);
});

t.test('each part that is read starts the time anew', async (t) => {
  const clock = new FakeClock();
  const started: number[] = [];
  const counting: Clock = {
    now: () => clock.now(),
    after: (ms, fn) => {
      started.push(ms);
      return clock.after(ms, fn);
    },
  };
  const reading = readWeights(
    '',
    counting,
    SILENCE_MS,
    thread(`
    parentPort.once('message', () => {
      for (const kind of ['read', 'read', 'hashed']) parentPort.postMessage({ kind, version: 'v' });
    });
    parentPort.postMessage({ kind: 'found', key: 'k' });
  `),
  );
  t.equal(await reading.found, 'k');
  t.equal(clock.pending, 0);
  t.match(await reading.content(), { version: 'v' });
  t.same(
    started,
    Array.from({ length: 4 }, () => SILENCE_MS),
    'for the key, the first part and those after two parts',
  );
  t.equal(clock.pending, 0);
  reading.close();
});

t.test('few are hashed at once, and how long that takes is known', async (t) => {
  const dir = t.testdir({ a: 'a'.repeat(4000), b: 'b'.repeat(8000), c: 'c'.repeat(4000) });
  const [a, b, c] = [join(dir, 'a'), join(dir, 'b'), join(dir, 'c')];
  const clock = new FakeClock();
  const begun = new Map<string, (version: string) => void>();
  const files = new WeightFiles(SILENCE_MS, clock, (file) =>
    reader(file, () => new Promise((settle) => begun.set(file, settle))),
  );
  t.equal(files.msLeft(a), 0);
  const all = [files.of(a), files.of(b), files.of(c)];
  await turns();
  t.strictSame([...begun.keys()], [a, b], 'the third waits');
  t.ok(files.msLeft(a) > 0 && files.msLeft(a) < 1, 'until one was measured');
  clock.advance(2000);
  begun.get(a)?.('a');
  t.match(await all[0], { file: { version: 'a' } });
  await turns();
  t.strictSame([...begun.keys()], [a, b, c]);
  t.equal(files.msLeft(a), 0);
  begun.get(b)?.('b');
  begun.get(c)?.('c');
  t.match(await Promise.all(all), [{ file: { version: 'a' } }, { file: { version: 'b' } }, { file: { version: 'c' } }]);
  // The last one that was long enough: 8,000 bytes in 2 s.
  await writeFile(a, 'a'.repeat(1000));
  await writeFile(b, 'b'.repeat(2000));
  const again = [files.of(a), files.of(b)];
  await turns();
  t.strictSame([files.msLeft(a), files.msLeft(b)], [250, 750], 'one after another');
  clock.advance(100);
  t.equal(files.msLeft(a), 150);
  begun.get(a)?.('a');
  begun.get(b)?.('b');
  await Promise.all(again);
});

t.test('a key distinguishes a file that was written to from one that took its path', async (t) => {
  const dir = t.testdir({ a: 'one', b: 'two' });
  const [a, b] = [join(dir, 'a'), join(dir, 'b')];
  const before = fileKey(a) ?? '';
  t.equal(fileKey(a), before);
  await chmod(a, 0o600);
  const changed = fileKey(a) ?? '';
  t.not(changed, before, 'the inode changed');
  await copyFile(b, a);
  await utimes(a, new Date(0), new Date(0));
  t.ok(writtenInPlace(fileKey(a) ?? '', before), 'whatever its times are set to');
  await rename(b, a);
  t.notOk(writtenInPlace(fileKey(a) ?? '', before));
  t.equal(fileKey(b), undefined);
});

t.test('the key of a split model is of all its parts', async (t) => {
  const dir = t.testdir({ 'm-00001-of-00002.gguf': 'one', 'm-00002-of-00002.gguf': 'two!', other: 'else' });
  const first = join(dir, 'm-00001-of-00002.gguf');
  const second = join(dir, 'm-00002-of-00002.gguf');
  t.same(partsOf(first), [first, second]);
  t.same(partsOf(second), [second], 'llama.cpp loads a model by its first part');
  const before = fileKey(first) ?? '';
  t.equal(sizeIn(before), 7);
  await copyFile(join(dir, 'other'), second);
  const written = fileKey(first) ?? '';
  t.ok(writtenInPlace(written, before));
  await rename(join(dir, 'other'), second);
  t.not(fileKey(first), written);
  t.notOk(writtenInPlace(fileKey(first) ?? '', written), 'the first part is unchanged, and the second another file');
  await rm(second);
  t.type(fileKey(first), 'string', 'what is missing is not');
});

t.test('replicas are given the weights that were loaded first, or asked to load others', async (t) => {
  let now: { key: string; version: string } | undefined = { key: '1', version: 'v' };
  const unreadable: string[] = [];
  const of = (): Promise<Hashed> =>
    Promise.resolve(now ? { kind: 'hashed', file: now } : { kind: 'unread', why: 'cannot be read' });
  const known = sameWeights({ of }, (why) => unreadable.push(why));
  const file = '/f';
  t.strictSame(await known({ file }), { key: '1', version: 'v' });
  now = { key: '2', version: 'v' };
  t.strictSame(await known({ file }), { key: '2', version: 'v' }, 'the same content elsewhere will do');
  now = { key: '3', version: 'w' };
  t.strictSame(await known({ file }), { key: '1', version: 'v' }, 'other content will be refused, by its key');
  const weights = { key: '3', version: 'w' };
  t.strictSame(await known({ file, weights }), weights, 'unless it was asked for');
  now = undefined;
  t.strictSame(unreadable, []);
  t.strictSame(await known({ file, weights }), weights);
  t.strictSame(unreadable, ['/f cannot be read']);
});
