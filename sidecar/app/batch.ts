/** The store of files and batches of one process, as `batch.store` has it. */
import { createHash } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { BatchRunner } from '../api/batch-runner.js';
import type { BatchRunOptions } from '../api/running-batch.js';
import type { BatchServices } from '../api/services.js';
import type { RecordedUsage } from '../batch/answers.js';
import { BatchStore } from '../batch/batch-store.js';
import { FileStore, WrongKey } from '../batch/file-store.js';
import { Vault } from '../batch/records.js';
import type { Config } from '../config/config.js';
import { readSecrets } from '../lib/secret-file.js';
import { START } from '../usage/spool-format.js';
import type { Opening } from './identities.js';

/** The memory of the machine as files; each data folder has one of its own. */
const MEMORY_DIR = '/dev/shm';

/** The folder of batches in a data folder. */
export function batchDir({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'batches');
}

/** Where the content of files is. */
export function contentDirOf({ dataDir }: Pick<Config, 'dataDir'>, store: Config['batch']['store']): string {
  if (store !== 'memory') return join(batchDir({ dataDir }), 'content');
  return join(MEMORY_DIR, `ra-sidecar-${createHash('sha256').update(dataDir).digest('hex').slice(0, 16)}`);
}

/**
 * Opens the store while this process has the lock of the spool, and so of the data folder. Undefined if it is off. Rejects with one line if
 * the operator's key is missing or is not the one of the stored files, or if files are stored on the disk and the store is another one: they
 * would stay there, and a batch that goes on later could be billed twice.
 */
export async function openBatches(
  config: Config,
  { clock, log, closers }: Opening,
  running: Running,
): Promise<BatchServices | undefined> {
  const { store, keyFile, maxBytes } = config.batch;
  const dir = batchDir(config);
  const onDisk = await readdir(join(dir, 'files')).catch(() => []);
  if (store !== 'disk' && onDisk.some((name) => name.endsWith('.json'))) throw new Error(leftOnDisk(dir));
  // What an earlier process with another store left in memory; a folder of another user stays.
  if (store !== 'memory')
    await rm(contentDirOf(config, 'memory'), { recursive: true, force: true }).catch(() => undefined);
  if (store === 'off') return undefined;
  const isMemory = store === 'memory';
  const vault = isMemory || keyFile === undefined ? Vault.ofProcess() : new Vault(await readSecrets(keyFile));
  const onFault = (fault: unknown): void => log.error('stored file cannot be deleted', { fault });
  const contentDir = contentDirOf(config, store);
  const common = { clock, date: () => new Date(), vault, onFault };
  const filesDir = join(dir, isMemory ? 'memory' : 'files');
  const opening = FileStore.open({ ...common, dir: filesDir, contentDir, maxBytes, isMemory });
  const files = await opening.catch((error: unknown) => {
    if (error instanceof WrongKey) throw new Error(wrongKey(dir, keyFile, error), { cause: error });
    throw error;
  });
  closers.add({ name: 'stored files', close: () => files.end() });
  const batches = await BatchStore.open({ ...common, dir: join(dir, 'batches'), files });
  const runner = new BatchRunner({
    ...running,
    clock,
    store: batches,
    files,
    onFault: (fault) => log.error('batch cannot go on', { fault }),
  });
  closers.add({ name: 'batches', close: () => runner.close() });
  return { files, uploads: new Map(), batches, runner, position: () => running.spool.position };
}

/** What lines of batches run with. */
export type Running = Pick<BatchRunOptions, 'spool' | 'services' | 'counted' | 'forget'>;

/** Of a process without a spool of its own: there is no earlier usage. */
export const NO_USAGE: RecordedUsage = {
  position: START,
  async *read() {
    // There is none.
  },
};

function leftOnDisk(dir: string): string {
  return (
    `batch.store: files are stored on the disk (folder ${dir}): set disk until they are deleted or their time is over, ` +
    'or give them up with `ra-sidecar batches drop --all`'
  );
}

function wrongKey(dir: string, keyFile: string | undefined, { message }: WrongKey): string {
  return (
    `batch.keyFile: ${message} with the keys in it: add the key that they were stored with as a line of ${keyFile ?? 'the file'}, ` +
    `or give them up with \`ra-sidecar batches drop --all\` (folder ${dir})`
  );
}
