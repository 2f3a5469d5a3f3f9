/**
 * What the memory of the sidecar and of the processes that it has started has of a batch: of its input nothing while it is stored, nor once
 * its lines have run; of its answers and the names of its lines nothing in the sidecar's own memory within ten seconds of the first one's end.
 */
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { countInMemory } from '../support/memory-search.js';
import { childrenOf, eventually } from '../support/processes.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

const LINES = 300;
/** What a line is named by, and a whole reply: an engine's messages have it token by token. */
const NAME = 'marimba';
const REPLY = ' steady steady steady';

t.test('no text of a stored file is in memory, nor of lines that ran', async (t) => {
  const dir = t.testdir();
  const config = { ...(await chatOnly(16)), dataDir: join(dir, 'data'), batch: storeOnDisk(dir) };
  const sidecar = await Sidecar.start(t, { stub: true, config });
  const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
  // Each line has the text once.
  const stored = async (word: string): Promise<string> => {
    const text = Array.from({ length: LINES }, (_, i) =>
      chatLine(`${NAME}-${i}`, 3, { messages: [{ role: 'user', content: `${word} ${i}` }] }),
    ).join('\n');
    return (await client.files.create({ file: await toFile(Buffer.from(text), 'in'), purpose: 'batch' })).id;
  };
  const run = async (id: string): Promise<void> => {
    const begun = await client.batches.create({
      input_file_id: id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const batch = await ended(client, begun.id);
    t.match(batch.request_counts, { completed: LINES });
    for (const each of [id, batch.output_file_id]) await client.files.delete(each ?? '');
  };
  const left = (): number => countInMemory(sidecar.pid, [Buffer.from('xylophone')]);
  const id = await stored('xylophone');
  t.equal(left(), 0, 'while it is stored');
  await run(id);
  t.equal(left(), 0, 'once it has run and is deleted, before any collection of garbage');
  const others = (): ReturnType<typeof childrenOf> => childrenOf(sidecar.pid);
  await eventually('the end of the prompt host of batches', () =>
    others().every(({ command }) => !command.includes('prompts/host.js batch')),
  );
  for (const word of [NAME, REPLY]) t.equal(countInMemory(sidecar.pid, [Buffer.from(word)]), 0, word);
  for (const { pid, command } of others()) t.equal(countInMemory(pid, [Buffer.from('xylophone')]), 0, command);
});
