/** `ra-sidecar batches`: lists and ends batches of the running sidecar, and gives up what a store on disk has. */
import { readdir, rm } from 'node:fs/promises';
import type { BatchRow } from '../api/batch-operators.js';
import { batchDir } from '../app/batch.js';
import type { Config } from '../config/config.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, failedWith, runOf, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';
import { isRunning } from './host-checks.js';
import { columns } from './terminal.js';

type Settings = Pick<Config, 'dataDir' | 'operators'>;

/** `ra-sidecar batches list|cancel|drop`. Resolves with the exit code. */
export function batches(config: Settings, args: readonly string[], io: Output): Promise<number> {
  return runOf('batches', COMMANDS.batches, args, {
    list: ({ values }) => list(config, values.json === true, io),
    cancel: ({ operands: [id = ''] }) => end(config, 'cancel', id, io),
    drop: ({ values, operands: [id] }) => drop(config, id, values.all === true, io),
  });
}

async function list({ operators }: Settings, json: boolean, { out, err: say }: Output): Promise<number> {
  const asked = await askSidecar<{ batches: readonly BatchRow[] }>(operators, { method: 'GET', path: '/batches' });
  if (asked.kind === 'none' || asked.body.batches === undefined)
    return failedWith(say, asked.kind === 'none' ? asked.why : (asked.body.error?.message ?? 'no answer'));
  const rows = asked.body.batches;
  if (json) out(`${JSON.stringify(rows, null, 2)}\n`);
  else {
    const cells = rows.map(({ id, account, status, lines, answered, failed, created_at: created }) => [
      id,
      account,
      status,
      `${answered + failed} of ${lines}`,
      new Date(created * 1000).toISOString(),
    ]);
    out(columns([['ID', 'ACCOUNT', 'STATUS', 'ANSWERED', 'CREATED'], ...cells]));
  }
  return EXIT.done;
}

async function end(
  { operators }: Settings,
  how: 'cancel' | 'drop',
  id: string,
  { out, err: say }: Output,
): Promise<number> {
  const body = JSON.stringify({ id });
  const asked = await askSidecar<BatchRow>(operators, { method: 'POST', path: `/batches/${how}`, body });
  if (asked.kind === 'none' || asked.body.id === undefined)
    return failedWith(say, asked.kind === 'none' ? asked.why : (asked.body.error?.message ?? 'no answer'));
  out(`${asked.body.id} ${how === 'drop' ? 'dropped' : (asked.body.status ?? '')}\n`);
  return EXIT.done;
}

async function drop(config: Settings, id: string | undefined, all: boolean, io: Output): Promise<number> {
  if ((id === undefined) !== all) throw new UsageError('batches drop: an ID or --all is required');
  if (id !== undefined) return await end(config, 'drop', id, io);
  if (await isRunning(config)) return failedWith(io.err, 'a sidecar runs on this data folder: stop it first');
  const dir = batchDir(config);
  const there = await readdir(dir).catch(() => undefined);
  await rm(dir, { recursive: true, force: true });
  io.out(
    there === undefined ? `there is nothing at ${dir}\n` : `${dir} is removed, with all files, batches and answers\n`,
  );
  return EXIT.done;
}
