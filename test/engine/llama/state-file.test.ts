import { closeSync, openSync, readFileSync, statSync, writeFileSync, writeSync } from 'node:fs';
import t from 'tap';
import type { AddonContext } from '../../../engine/llama/native.js';
import { StateInFile } from '../../../engine/llama/state-file.js';

/** Bytes of a state: no multiple of a block's. */
const STATE = 10_001;
/** The largest buffer of a file in glibc, bytes. */
const READ_AHEAD = 8192;

t.test('token ids are farther behind a state than the C library reads ahead', async (t) => {
  let path = '';
  const context = {
    saveSequenceStateToFile: (file: string) => {
      path = file;
      writeFileSync(file, Buffer.alloc(STATE, 1));
      return Promise.resolve(STATE);
    },
  } as unknown as AddonContext;
  const notes = { tokens: Uint32Array.of(7, 8, 9), ends: Uint32Array.of(2, 3) };
  const saved = await StateInFile.save(context, 0, { length: 3, last: 2 }, notes);
  const bytes = readFileSync(path);
  t.equal(bytes.length, saved.bytes);
  t.ok(bytes.subarray(0, STATE).every((byte) => byte === 1));
  t.ok(bytes.length - 4 * 5 >= STATE + READ_AHEAD);
  t.ok(bytes.subarray(STATE, -4 * 5).every((byte) => byte === 0));
  if (!saved.shared) throw new Error('it has notes');
  const opened = StateInFile.open({ ...saved.shared, pid: process.pid });
  t.same(opened.notes, notes);
  t.equal(opened.state.bytes, saved.bytes);
  opened.state.dispose();
  saved.dispose();
});

/** Bytes that this process has read from files since its start. */
const bytesRead = (): number => Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);

t.test(
  'to report a state, to open it elsewhere and to restore it reads none of its bytes on this thread',
  async (t) => {
    const large = Buffer.alloc(8 << 20, 1);
    let path = '';
    const context = {
      saveSequenceStateToFile: (file: string) => {
        path = file;
        writeFileSync(file, large);
        return Promise.resolve(large.length);
      },
      loadSequenceStateFromFile: () => Promise.resolve(),
      getSequenceKvCacheMaxPosition: () => 2,
    } as unknown as AddonContext;
    const notes = { tokens: Uint32Array.of(7, 8, 9), ends: Uint32Array.of(2, 3) };
    const before = bytesRead();
    const saved = await StateInFile.save(context, 0, { length: 3, last: 2 }, notes);
    if (!saved.shared) throw new Error('it has notes');
    const { state } = StateInFile.open({ ...saved.shared, pid: process.pid });
    await saved.restore(context, 0);
    if (!(state instanceof StateInFile)) throw new Error('it is of a file');
    await state.restore(context, 0);
    const read = bytesRead() - before;
    t.ok(read < large.length / 8, `${read} bytes read`);

    // The kernel's clock has ticks: a change within the same one as the end of the save is not told apart from it.
    const { ctimeNs } = statSync(path, { bigint: true });
    while (statSync(path, { bigint: true }).ctimeNs === ctimeNs) {
      const file = openSync(path, 'r+');
      writeSync(file, Uint8Array.of(2), 0, 1, large.length / 2);
      closeSync(file);
    }
    await t.rejects(saved.restore(context, 0), /the state has changed/);
    await t.rejects(state.restore(context, 0), /the state has changed/);
    const { shared } = saved;
    t.throws(() => StateInFile.open({ ...shared, pid: process.pid }), /the state is gone/);
    state.dispose();
    saved.dispose();
  },
);
