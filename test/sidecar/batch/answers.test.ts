import { readdirSync, readFileSync, readlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Answers, type Answer } from '../../../sidecar/batch/answers.js';
import { FileStore, type FileRecord } from '../../../sidecar/batch/file-store.js';
import { Vault } from '../../../sidecar/batch/records.js';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import type { Position } from '../../../sidecar/usage/spool-format.js';
import { FakeClock } from '../../support/fake-clock.js';
import { usageRecord } from '../../support/usage-records.js';

const MAX = Number.MAX_SAFE_INTEGER;

/** A store, a batch’s two files in it, and a spool of records, one byte each. */
class Batch {
  readonly records: UsageRecord[] = [];
  readonly saved: Position[] = [];
  /** Answers that are marked, as last saved. */
  kept = 0;
  /** It is durable that answers are lost. */
  isLost = false;
  /** That cannot be made durable. */
  loseFault: Error | undefined;
  saveFault: Error | undefined;
  segment = 1;
  /** Of the spool; the one that its reading ends with. */
  fault: Error | undefined;
  readonly files: FileStore;
  readonly #dir: string;
  readonly #output: FileRecord;
  readonly #error: FileRecord;

  private constructor(dir: string, files: FileStore, output: FileRecord, error: FileRecord) {
    this.#dir = dir;
    this.files = files;
    this.#output = output;
    this.#error = error;
  }

  static async make(t: Test): Promise<Batch> {
    const clock = new FakeClock();
    const dir = t.testdir();
    const files = await FileStore.open({
      clock,
      date: () => new Date(clock.now()),
      vault: Vault.ofProcess(),
      dir: join(dir, 'records'),
      contentDir: join(dir, 'content'),
      maxBytes: MAX,
      isMemory: false,
      onFault: (fault) => {
        throw fault;
      },
    });
    t.teardown(() => files.end());
    return new Batch(dir, files, await files.createOpen('a', 'o', MAX), await files.createOpen('a', 'e', MAX));
  }

  get position(): Position {
    return { segment: this.segment, offset: this.records.length };
  }

  open(): Promise<Answers> {
    const read = async function* (
      records: readonly UsageRecord[],
      fault: Error | undefined,
    ): AsyncGenerator<{ kind: string; record: UsageRecord }> {
      if (fault) throw fault;
      for (const record of records) yield { kind: 'record', record };
    };
    const position = (): Position => this.position;
    const spool = {
      get position(): Position {
        return position();
      },
      read: ({ offset }: Position) => read(this.records.slice(offset), this.fault),
    };
    return Answers.open({
      files: this.files,
      spool,
      output: this.#output.id,
      error: this.#error.id,
      from: this.saved.at(-1) ?? { segment: 1, offset: 0 },
      save: (at, kept) => {
        if (this.saveFault) return Promise.reject(this.saveFault);
        this.saved.push(at);
        this.kept = kept;
        return Promise.resolve();
      },
      kept: this.kept,
      lose: () => {
        if (this.loseFault) return Promise.reject(this.loseFault);
        this.isLost = true;
        return Promise.resolve();
      },
    });
  }

  /** The finished request of an answer. */
  close(answer: Answer, outcome: 'done' | 'failed' = 'done'): void {
    this.records.push({ ...usageRecord(answer.attempt, 'close'), outcome });
  }

  /** The file of answers. */
  get path(): string {
    return join(this.#dir, 'content', this.#output.id);
  }

  /** Damages a byte of the answers. */
  damage(at: number): void {
    const bytes = readFileSync(this.path);
    bytes[at] = (bytes[at] ?? 0) ^ 0x80;
    writeFileSync(this.path, bytes);
  }

  /** Open descriptors of stored files. */
  get descriptors(): number {
    const paths = readdirSync('/proc/self/fd').map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        return '';
      }
    });
    return paths.filter((path) => path.startsWith(join(this.#dir, 'content', 'file-'))).length;
  }

  async lines(): Promise<string> {
    const file = await this.files.continue(this.#output.id, () => undefined);
    let text = '';
    for await (const part of file.contents()) text += part.toString();
    await file.close();
    return text;
  }
}

function answer(line: number): Answer {
  const used = { promptTokens: 3, cachedTokens: 1, completionTokens: line };
  const attempt = `00000000-0000-4000-8000-${String(line).padStart(12, '0')}`;
  return { line, content: Buffer.from(`${line}\n`), attempt, used, picodollars: BigInt(line) };
}

t.test('after a crash, what was billed is kept, what was not is void and runs again', async (t) => {
  const batch = await Batch.make(t);
  const before = await batch.open();
  const [settled, closed, failed, unclosed] = [answer(1), answer(2), answer(3), answer(4)];
  for (const each of [settled, closed, failed, unclosed]) await before.keep('completed', each);
  batch.close(settled);
  await before.settled(settled);
  batch.close(closed);
  batch.close(failed, 'failed');
  const refused = { ...answer(5), attempt: '', picodollars: 0n };
  await before.keep('failed', refused);
  // No mark, no close: the process is gone.
  const after = await batch.open();
  t.same(
    [1, 2, 3, 4, 5].map((line) => after.has(line)),
    [true, true, false, false, true],
  );
  t.match(after.sums, { completed: 2, failed: 1, picodollars: 3n, used: { promptTokens: 9, completionTokens: 8 } });
  // As its line is run again; what was kept was overwritten.
  await after.keep('completed', answer(4));
  batch.close(unclosed);
  await after.settled(unclosed);
  await after.finish();
  t.equal(await batch.lines(), '1\n2\n4\n');
});

/** Of a piece of one line here. */
const PIECE = 64 + 2 + 16;

/** A batch of three answers that are durable, the last one without its mark if `billed` is `record`, or without a record. */
async function withThree(t: Test, billed: 'marked' | 'record' | 'none'): Promise<Batch> {
  const batch = await Batch.make(t);
  const answers = await batch.open();
  for (const each of [answer(1), answer(2), answer(3)]) {
    await answers.keep('completed', each);
    if (billed !== 'none') batch.close(each);
    if (billed === 'marked') await answers.settled(each);
  }
  await answers.mark();
  await answers.close();
  return batch;
}

t.test('of answers that were billed and are damaged no line runs again, and the others stay', async (t) => {
  for (const billed of ['marked', 'record'] as const)
    for (const [at, kept] of [
      // A head, one’s line, an answer, and the last one.
      [PIECE + 1, [1, 3]],
      [PIECE + 8, [1, 3]],
      [PIECE + 64, [1, 3]],
      [2 * PIECE + 64, [1, 2]],
    ] as const) {
      const batch = await withThree(t, billed);
      batch.damage(at);
      const answers = await batch.open();
      t.ok(batch.isLost, `${billed}, byte ${at}: the batch ends`);
      t.same(
        [1, 2, 3].filter((line) => answers.has(line)),
        kept,
      );
      await answers.finish();
      await answers.close();
      t.equal(await batch.lines(), kept.map((line) => `${line}\n`).join(''));
    }
});

t.test('a loss is durable before anything hides it, whenever the process ends', async (t) => {
  for (const billed of ['marked', 'record'] as const) {
    const batch = await withThree(t, billed);
    batch.damage(PIECE + 64);
    const damaged = readFileSync(batch.path);
    const { length } = batch.saved;
    batch.loseFault = new Error('ENOSPC');
    for (let tries = 0; tries < 2; tries += 1) await t.rejects(batch.open(), /ENOSPC/);
    t.ok(readFileSync(batch.path).equals(damaged), 'the file is as it was');
    t.equal(batch.saved.length, length, 'and the spool is needed from where it was');
    batch.loseFault = undefined;
    await (await batch.open()).close();
    t.ok(batch.isLost, `${billed}: it is found again`);
  }
});

t.test('where fewer answers are marked than there were, some are lost', async (t) => {
  for (const [damage, kept] of [
    ['the last one’s head', 2],
    ['the end', 1],
  ] as const) {
    const batch = await withThree(t, 'marked');
    t.equal(batch.kept, 3);
    if (kept === 2) batch.damage(2 * PIECE + 1);
    else truncateSync(batch.path, PIECE + 40);
    const answers = await batch.open();
    t.ok(batch.isLost, damage);
    t.equal(answers.sums.completed, kept);
    t.equal(batch.kept, kept);
    await answers.close();
  }
});

t.test('answers count as marked once that is durable', async (t) => {
  const batch = await Batch.make(t);
  const before = await batch.open();
  for (const each of [answer(1), answer(2)]) {
    await before.keep('completed', each);
    batch.close(each);
    await before.settled(each);
  }
  batch.saveFault = new Error('ENOSPC');
  await t.rejects(before.mark(), /ENOSPC/);
  t.equal(batch.kept, 0);
  batch.saveFault = undefined;
  await before.mark();
  t.equal(batch.kept, 2);
  await before.close();
  await (await batch.open()).close();
  t.equal(batch.kept, 2);
  t.notOk(batch.isLost);
});

t.test('what a power failure left of a write that was not billed is void', async (t) => {
  const batch = await withThree(t, 'none');
  batch.damage(PIECE + 1);
  const answers = await batch.open();
  t.notOk(batch.isLost);
  t.same(
    [1, 2, 3].filter((line) => answers.has(line)),
    [],
  );
  await answers.keep('completed', answer(2));
  batch.close(answer(2));
  await answers.settled(answer(2));
  await answers.finish();
  await answers.close();
  const again = await batch.open();
  t.notOk(batch.isLost, 'nor later');
  await again.close();
  t.equal(await batch.lines(), '2\n');
});

t.test('the content of an answer that cannot be stored is overwritten too', async (t) => {
  const answers = await (await Batch.make(t)).open();
  await answers.close();
  const lost = answer(1);
  await t.rejects(answers.keep('completed', lost), /EBADF|closed/);
  t.same(lost.content, Buffer.alloc(2));
});

t.test('answers that cannot be opened keep no file open', async (t) => {
  const batch = await withThree(t, 'record');
  batch.fault = new Error('EIO');
  await t.rejects(batch.open(), /EIO/);
  t.equal(batch.descriptors, 0);
});

t.test('the spool is needed from before the oldest answer that is not settled', async (t) => {
  const batch = await Batch.make(t);
  const answers = await batch.open();
  const [slow, fast] = [answer(1), answer(2)];
  await answers.keep('completed', slow);
  batch.close(answer(9));
  await answers.keep('completed', fast);
  batch.close(fast);
  await answers.settled(fast);
  await answers.mark();
  t.same(batch.saved.at(-1), { segment: 1, offset: 0 });
  batch.close(slow);
  await answers.settled(slow);
  await answers.mark();
  t.same(batch.saved.at(-1), { segment: 1, offset: 3 });
  await answers.close();
  const again = await batch.open();
  t.match(again.sums, { completed: 2 }, 'marked ones need no spool');
  await again.close();
});

t.test('while no answer waits for its record, the spool is needed from its present segment', async (t) => {
  const batch = await Batch.make(t);
  const answers = await batch.open();
  batch.segment = 4;
  await answers.mark();
  t.same(batch.saved.at(-1), { segment: 4, offset: 0 });
  const { length } = batch.saved;
  await answers.mark();
  t.equal(batch.saved.length, length, 'one write a segment');
  await answers.keep('completed', answer(1));
  batch.segment = 5;
  await answers.mark();
  t.equal(batch.saved.length, length, 'but for an answer that waits');
  await answers.close();
});

t.test('answers that come together are one write', async (t) => {
  const batch = await Batch.make(t);
  const answers = await batch.open();
  await Promise.all(Array.from({ length: 100 }, (_, i) => answers.keep('completed', answer(i + 1))));
  t.equal(answers.sums.completed, 100);
  t.equal(answers.bytes.completed, (await batch.lines()).length);
  await answers.close();
});
