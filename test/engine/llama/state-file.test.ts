import { closeSync, existsSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import t from 'tap';
import type { AddonContext } from '../../../engine/llama/addon.js';
import { type StateCopies, StateInFile } from '../../../engine/llama/state-file.js';

/** Bytes of a state: no multiple of a block's. */
const STATE = 10_001;

const NONE = {} as AddonContext;
const NOTES = { tokens: Uint32Array.of(7, 8, 9), ends: Uint32Array.of(2, 3) };

interface Copies extends StateCopies {
  /** Path of the file that was written last. */
  file: string;
  /** Bytes that were restored last. */
  restored: number;
}

/** Writes states of so many bytes on another thread, as the addon does. */
function copies(bytes: number): Copies {
  const made: Copies = {
    file: '',
    restored: 0,
    raSaveState: async (_, __, file) => {
      made.file = `/proc/self/fd/${file}`;
      await writeFile(made.file, Buffer.alloc(bytes, 1));
      return bytes;
    },
    raRestoreState: (_, __, ___, count) => {
      made.restored = count;
      return Promise.resolve(count);
    },
  };
  return made;
}

t.test('token ids are behind a state, and only the state is restored', async (t) => {
  const made = copies(STATE);
  const context = { getSequenceKvCacheMaxPosition: () => 2 } as unknown as AddonContext;
  const saved = await StateInFile.save(made, NONE, 0, { length: 3, last: 2 }, NOTES);
  const bytes = readFileSync(made.file);
  t.equal(bytes.length, saved.bytes);
  t.ok(bytes.subarray(0, STATE).every((byte) => byte === 1));
  if (!saved.shared) throw new Error('it has notes');
  const opened = StateInFile.open({ ...saved.shared, pid: process.pid });
  t.same(opened.notes, NOTES);
  t.equal(opened.state.bytes, saved.bytes);
  if (!(opened.state instanceof StateInFile)) throw new Error('it is of a file');
  for (const state of [saved, opened.state]) {
    made.restored = 0;
    await state.restore(made, context, 0);
    t.equal(made.restored, STATE);
    state.dispose();
  }
});

t.test('a state’s memory is freed on another thread', async (t) => {
  const saved = await StateInFile.save(copies(STATE), NONE, 0, { length: 3, last: 2 }, NOTES);
  const closing = (): number => process.getActiveResourcesInfo().filter((name) => name === 'FSReqCallback').length;
  const before = closing();
  const descriptor = saved.shared?.file;
  saved.dispose();
  saved.dispose();
  t.equal(closing(), before + 1);
  while (closing() > before) await new Promise(setImmediate);
  t.notOk(existsSync(`/proc/self/fd/${descriptor}`));
});

/** Bytes that this process has read from files since its start. */
const bytesRead = (): number => Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);

t.test(
  'to report a state, to open it elsewhere and to restore it reads none of its bytes on this thread',
  async (t) => {
    const large = 8 << 20;
    const made = copies(large);
    const context = { getSequenceKvCacheMaxPosition: () => 2 } as unknown as AddonContext;
    const before = bytesRead();
    const saved = await StateInFile.save(made, context, 0, { length: 3, last: 2 }, NOTES);
    if (!saved.shared) throw new Error('it has notes');
    const { state } = StateInFile.open({ ...saved.shared, pid: process.pid });
    await saved.restore(made, context, 0);
    if (!(state instanceof StateInFile)) throw new Error('it is of a file');
    await state.restore(made, context, 0);
    const read = bytesRead() - before;
    t.ok(read < large / 8, `${read} bytes read`);

    // The kernel's clock has ticks: a change within the same one as the end of the save is not told apart from it.
    const { ctimeNs } = statSync(made.file, { bigint: true });
    while (statSync(made.file, { bigint: true }).ctimeNs === ctimeNs) {
      const file = openSync(made.file, 'r+');
      writeSync(file, Uint8Array.of(2), 0, 1, large / 2);
      closeSync(file);
    }
    await t.rejects(saved.restore(made, context, 0), /the state has changed/);
    await t.rejects(state.restore(made, context, 0), /the state has changed/);
    const { shared } = saved;
    t.throws(() => StateInFile.open({ ...shared, pid: process.pid }), /the state is gone/);
    state.dispose();
    saved.dispose();
  },
);
