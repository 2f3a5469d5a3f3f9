import { execFileSync } from 'node:child_process';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FileProblem, readChecked, UnreadFile } from '../../../sidecar/lib/checked-file.js';
import { FollowedFile, type FollowOptions } from '../../../sidecar/lib/followed-file.js';
import { FakeClock } from '../../support/fake-clock.js';

const POLL_MS = 1000;
const MAX_BYTES = 20;

/** A file of one number, and the hooks’ calls. key-identity.test.ts uses real clocks and events. */
class Harness {
  readonly clock = new FakeClock();
  readonly file: string;
  readonly said: (number | string)[] = [];
  followed: FollowedFile<number> | undefined;

  constructor(t: Test, content?: string) {
    this.file = join(t.testdir(content === undefined ? {} : { number: content }), 'number');
    t.teardown(() => this.followed?.close());
  }

  /** Resolves with the first value. */
  async open(more: Partial<FollowOptions<number>> = {}): Promise<number> {
    const { followed, value } = await FollowedFile.open<number>({
      clock: this.clock,
      file: this.file,
      read: () => readChecked(more.file ?? this.file, { what: 'number', maxBytes: MAX_BYTES, parse: numberIn }),
      pollMs: POLL_MS,
      taken: (number) => this.said.push(number),
      refused: (problem) => this.said.push(problem),
      ...more,
    });
    this.followed = followed;
    return value;
  }

  /** Replaces the file as an operator should: whole, by rename. */
  async put(content: string): Promise<void> {
    await writeFile(`${this.file}.new`, content);
    await rename(`${this.file}.new`, this.file);
  }

  /** The next call of a hook. Polls repeat: one that is due during a read comes after it. */
  async next(): Promise<number | string | undefined> {
    const before = this.said.length;
    while (this.said.length === before) {
      this.clock.advance(POLL_MS);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return this.said.at(-1);
  }
}

function numberIn(text: string, file: string): number {
  if (!/^[0-9]+$/.test(text)) throw new FileProblem('number', 'is no number', file);
  return Number(text);
}

t.test('each change is used, and a file that cannot be used leaves the previous value', async (t) => {
  const harness = new Harness(t, '1');
  t.equal(await harness.open(), 1);
  await harness.put('2');
  t.equal(await harness.next(), 2);
  await harness.put('two');
  t.equal(await harness.next(), 'is no number');
  await harness.put('3'.repeat(MAX_BYTES + 1));
  t.equal(await harness.next(), `is longer than ${MAX_BYTES} bytes`);
  await rm(harness.file);
  t.equal(await harness.next(), 'does not exist');
  await harness.put('4');
  t.equal(await harness.next(), 4);
  t.strictSame(harness.said.length, 5);
});

t.test('an unchanged value is not reported again, except by reload()', async (t) => {
  const harness = new Harness(t, '1');
  await harness.open();
  await harness.put('1');
  harness.clock.advance(POLL_MS);
  // A poll that had found a change would report it before this read, which follows it.
  await harness.followed?.reload();
  t.strictSame(harness.said, [1]);
});

t.test('a start without a file: the configured substitute, or an error', async (t) => {
  const harness = new Harness(t);
  await t.rejects(harness.open(), { message: `number: does not exist (file ${harness.file})` });
  t.equal(harness.clock.pending, 0, 'nothing is followed');
  t.equal(await harness.open({ absent: 0 }), 0);
  await harness.put('5');
  t.equal(await harness.next(), 5);
});

t.test('an invalid file at the start is an error, also with a substitute for a missing one', async (t) => {
  const harness = new Harness(t, 'five');
  await t.rejects(harness.open({ absent: 0 }), FileProblem);
});

t.test('after close nothing is kept open', async (t) => {
  const harness = new Harness(t, '1');
  await harness.open();
  harness.followed?.close();
  harness.followed?.close();
  t.equal(harness.clock.pending, 0);
  await harness.put('2');
  await harness.followed?.reload();
  t.strictSame(harness.said, []);
});

t.test('a file that is not regular is refused, and delays nothing', async (t) => {
  const harness = new Harness(t);
  execFileSync('mkfifo', [harness.file]);
  await t.rejects(harness.open(), { message: /^number: is not a regular file \(file / }, 'at the start');
  await t.rejects(harness.open({ file: '/dev/zero' }), { message: /is not a regular file/ });

  await harness.put('1');
  t.equal(await harness.open(), 1);
  await rm(harness.file);
  execFileSync('mkfifo', [harness.file]);
  await harness.followed?.reload();
  t.strictSame(harness.said, ['is not a regular file']);
  await harness.put('2');
  await harness.followed?.reload();
  t.strictSame(harness.said, ['is not a regular file', 2], 'and the next one is used');
});

t.test('a file that could not be read is read again, although it has not changed', async (t) => {
  const harness = new Harness(t, '1');
  let failures = 3;
  const read = (): ReturnType<typeof readChecked<number>> => {
    const isFirst = harness.followed === undefined;
    if (isFirst || failures-- <= 0)
      return readChecked(harness.file, { what: 'number', maxBytes: MAX_BYTES, parse: numberIn });
    const problem = new UnreadFile('number', 'EMFILE', harness.file);
    return Promise.resolve({ kind: 'bad', sign: problem.problem, problem });
  };
  t.equal(await harness.open({ read }), 1);
  await harness.put('2');
  t.equal(await harness.next(), 'cannot be read: EMFILE');
  t.equal(await harness.next(), 2);
  t.strictSame(harness.said, ['cannot be read: EMFILE', 2], 'reported once');
});

t.test('a fault of what reads the file, or of what uses it, is reported and does not end the following', async (t) => {
  const harness = new Harness(t, '1');
  let faults = 0;
  const failing = (): void => {
    if (faults-- > 0) throw new TypeError('of a test');
  };
  await harness.open({
    read: async () => {
      if (harness.followed !== undefined && faults > 1) failing();
      return readChecked(harness.file, { what: 'number', maxBytes: MAX_BYTES, parse: numberIn });
    },
    taken: (number) => {
      failing();
      harness.said.push(number);
    },
  });
  faults = 2;
  await harness.put('2');
  t.equal(await harness.next(), 'cannot be used: TypeError', 'its reader threw');
  t.equal(await harness.next(), 2, 'and what uses it once, which is tried again');
  await harness.put('3');
  await harness.followed?.reload();
  t.equal(harness.said.at(-1), 3);
  t.ok(harness.clock.pending > 0, 'it is still polled');
});
