/** The thread of large-file.ts: answers each message with the next part of one file, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { readChecked } from '../lib/checked-file.js';
import { CREDIT } from './credit.js';
import { KEYS } from './key-file.js';
import type { FromThread, ThreadFile, LargeFormat } from './large-file.js';

const { what, file } = workerData as ThreadFile;
const answers = reader();

parentPort?.on('message', () => void answer());

function reader(): AsyncGenerator<FromThread<unknown>, void> {
  if (what === KEYS.what) return read(KEYS);
  if (what === CREDIT.what) return read(CREDIT);
  throw new Error('no such format');
}

async function answer(): Promise<void> {
  parentPort?.postMessage((await answers.next()).value);
}

async function* read<T>(format: LargeFormat<T>): AsyncGenerator<FromThread<T>, void> {
  const found = await readChecked(file, format);
  if (found.kind === 'bad') {
    yield { kind: 'bad', sign: found.sign, problem: found.problem.problem };
    return;
  }
  for (const part of format.parts(found.value)) yield { kind: 'part', part };
  yield { kind: 'end', sign: found.sign };
}
