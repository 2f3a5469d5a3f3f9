import { readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import type { AddonContext } from '../../../engine/llama/addon-context.js';
import { StateInFile } from '../../../engine/llama/whole-state.js';

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
