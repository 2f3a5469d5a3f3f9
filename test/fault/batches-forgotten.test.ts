/** What the sidecar's memory has of a batch's content once its files are deleted. */
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { countInMemory } from '../support/memory-search.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

const LINES = 300;
/** After so many others a batch that is still there is held. */
const MOST_BATCHES = 6;

/** A text that no other batch has, all of one length. */
const marked = (name: string, line: number): string => `${name}${String(line).padStart(5, '0')}`;

t.test('once a batch’s files are deleted, other work overwrites what memory has of them', async (t) => {
  const dir = t.testdir();
  const config = { ...(await chatOnly(16)), dataDir: join(dir, 'data'), batch: storeOnDisk(dir) };
  const sidecar = await Sidecar.start(t, { stub: true, config });
  const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
  const run = async (name: string): Promise<void> => {
    const text = Array.from({ length: LINES }, (_, i) =>
      chatLine(String(i), 1, { messages: [{ role: 'user', content: marked(name, i) }] }),
    ).join('\n');
    const file = await client.files.create({ file: await toFile(Buffer.from(text), 'in'), purpose: 'batch' });
    const { id } = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const batch = await ended(client, id);
    await answersIn(client, batch.output_file_id);
    for (const each of [file.id, batch.output_file_id]) await client.files.delete(each ?? '');
  };
  const left = (): number => countInMemory(sidecar.pid, [Buffer.from('xylophone')]);
  await run('xylophone');
  const before = left();
  t.comment(`${before} times, of ${LINES} lines`);
  // Nothing holds it: the garbage collector frees it, and what is allocated next overwrites it. When it does is the collector's.
  let now = before;
  for (let batch = 0; batch < MOST_BATCHES && now >= 0.75 * before; batch += 1) {
    await run(`marimbas${batch}`);
    now = left();
    t.comment(`${now} times after another batch`);
  }
  t.ok(now < 0.75 * before, `${now} of ${before}`);
});
