/**
 * What the memory of the sidecar and of the processes that it has started has of a batch: of its input nothing while it is stored, nor once
 * its lines have run; of its answers and the names of its lines nothing within 21 seconds of the first one's end; and of its tokens nothing
 * once the engine does not keep them for reuse any more.
 */
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t from 'tap';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { answersIn, chatLine, ended, storeOnDisk } from '../support/batch-client.js';
import { countInMemory } from '../support/memory-search.js';
import { embeddedTestModel } from '../support/models.js';
import { childrenOf, eventually } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

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

/** What each prompt has, and the number of consecutive characters and token ids that are searched for: fewer could be chance. */
const PROMPT =
  'the xylophone of seven rivers under a green stone house where paper clouds turn north and light tables wait for rain';
const CHARACTERS = 16;
const IDS = 8;
/** llama.cpp and the addon free buffers with the last chunks of prompts without clearing them, of each sequence at most one. */
const CHUNKS = 4;

/** Consecutive token ids as typed arrays have them, and as V8 has small integers in lists. */
const asIds = (ids: Uint32Array): Uint8Array => new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength);
const asList = (ids: Uint32Array): Uint8Array =>
  new Uint8Array(BigUint64Array.from(ids, (id) => BigInt(id) << 32n).buffer);

t.test(
  'with a real engine neither texts nor tokens are left in the sidecar, nor ids in the engine once they are too old',
  async (t) => {
    const dir = t.testdir();
    const models = (await chatOnly(4)).models.map((model) => ({ ...model, prefixCache: { maxAgeMs: 1000 } }));
    const sidecar = await Sidecar.start(t, {
      config: { models, dataDir: join(dir, 'data'), batch: storeOnDisk(dir) },
    });
    const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
    const text = Array.from({ length: 16 }, (_, i) =>
      chatLine(`${NAME}-${i}`, 48, { temperature: 0, messages: [{ role: 'user', content: `${i}: ${PROMPT}` }] }),
    ).join('\n');
    const { id } = await client.files.create({ file: await toFile(Buffer.from(text), 'in'), purpose: 'batch' });
    const begun = await client.batches.create({
      input_file_id: id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const batch = await ended(client, begun.id);
    const replies = (await answersIn(client, batch.output_file_id)).slice(0, 2).map(({ response }) => {
      return response?.body.choices[0]?.message.content ?? '';
    });
    const vocabulary = await loadVocabulary(await embeddedTestModel());
    t.teardown(() => vocabulary.dispose());
    const idsIn = (one: string): Uint32Array => vocabulary.tokenize(one, false).slice(4, 4 + IDS);
    const needles = {
      name: [Buffer.from(`${NAME}-1`)],
      prompt: [Buffer.from(PROMPT.slice(8, 8 + CHARACTERS))],
      replies: replies.map((one) => Buffer.from(one).subarray(8, 8 + CHARACTERS)),
      promptIds: [asIds(idsIn(PROMPT))],
      promptList: [asList(idsIn(PROMPT))],
      replyIds: replies.map((one) => asIds(idsIn(one))),
      replyList: replies.map((one) => asList(idsIn(one))),
    };
    for (const each of [id, batch.output_file_id]) await client.files.delete(each ?? '');
    await eventually('the end of the prompt host of batches', () =>
      childrenOf(sidecar.pid).every(({ command }) => !command.includes('prompts/host.js batch')),
    );
    // The last bytes that uWS sent stay in its buffer until it sends as many again, to anybody.
    const page = await (
      await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/metrics?name[]=gen_ai_client_token_usage`)
    ).text();
    t.ok(page.length > 2000 && page.length < 16_000, `${page.length} characters`);
    const others = childrenOf(sidecar.pid).filter(({ command }) => /engine\/main|host\.js short/.test(command));
    t.equal(others.length, 2);
    const { promptIds, replyIds, ...garbage } = needles;
    for (const { pid, command } of [{ pid: sidecar.pid, command: 'sidecar' }, ...others]) {
      const none = command.includes('engine') ? garbage : needles;
      for (const [name, all] of Object.entries(none)) t.equal(countInMemory(pid, all), 0, `${name} in ${command}`);
    }
    const engine = sidecar.enginePid(CHAT);
    await eventually('the age of the states in the engine', () => countInMemory(engine, replyIds) === 0);
    const found = countInMemory(engine, promptIds);
    t.ok(found <= CHUNKS, `${found} prompts in buffers of the engine`);
  },
);
