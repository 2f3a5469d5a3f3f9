/** Long form alone: memory of the sidecar while a file of 512 MiB is stored and read, and while a batch of 100,000 lines runs. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { chatLine, ended, MIB, storeOnDisk, upload } from '../support/batch-client.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

/** How much more memory the sidecar may have at any time, MiB. */
const MOST_MIB = 64;

/** Between two MiB of an upload as by a network. */
const NETWORK_MS = 20;

/** MiB of a process: now, and at most since {@link forgetPeak}. */
function mibOf({ pid }: Sidecar): { readonly now: number; readonly most: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string): number => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) / 1024;
  return { now: field('VmRSS'), most: field('VmHWM') };
}

function forgetPeak({ pid }: Sidecar): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

// Of all tests: that of one is removed before its sidecar has ended.
const dir = t.testdir();

t.test('memory does not grow with files and batches', async (t) => {
  const config = { ...(await chatOnly(32)), dataDir: join(dir, 'data'), batch: storeOnDisk(dir) };
  const sidecar = await Sidecar.start(t, { stub: true, config });
  const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0, timeout: 600_000 });
  const store = async (text: Buffer): Promise<OpenAI.FileObject> =>
    await client.files.create({ file: await toFile(text, 'in'), purpose: 'batch' });
  await upload(sidecar, 16, NETWORK_MS);
  const before = mibOf(sidecar).now;
  const grown = (what: string): void => {
    const { now, most } = mibOf(sidecar);
    t.ok(
      most - before < MOST_MIB,
      `${what}: at most +${Math.round(most - before)} MiB, and then +${Math.round(now - before)}`,
    );
    forgetPeak(sidecar);
  };
  // Without a pause: on the same host faster than the sidecar writes.
  const big = await upload(sidecar, 512, 0);
  grown('an upload of 512 MiB');
  let bytes = 0;
  for await (const part of (await client.files.content(big)).body ?? []) bytes += (part as Uint8Array).length;
  t.equal(bytes, 512 * MIB);
  grown('its download');
  const lines = Array.from({ length: 100_000 }, (_, i) => chatLine(String(i), 1));
  const run = async (all: readonly string[]): Promise<OpenAI.Batch> => {
    const { id } = await store(Buffer.from(all.join('\n')));
    const { id: batch } = await client.batches.create({
      input_file_id: id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    return await ended(client, batch);
  };
  t.match(await run([...lines, chatLine('more', 1)]), {
    status: 'failed',
    errors: { data: [{ code: 'too_many_tasks', line: 100_001 }] },
  });
  grown('one of 100,001 that is refused');
  t.match(await run(lines), { status: 'completed', request_counts: { completed: 100_000, failed: 0 } });
  grown('a batch of 100,000 lines');
});
