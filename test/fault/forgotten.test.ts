/** What an engine’s memory contains of an account that was closed. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { countInMemory } from '../support/memory-search.js';
import { RealEngine } from '../support/real-engine.js';

const PROMPT = 1000;
const CHUNK = 256;
/** Consecutive token ids that are searched for: fewer could be chance. */
const ROW = 16;

/** Random prompt ids, so that no other prompt has the same sequence. */
function ids(salt: number): Uint32Array {
  let random = salt;
  return Uint32Array.from({ length: PROMPT }, () => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
    return 40 + ((random >>> 16) % 180);
  });
}

/** Every row that begins at a multiple of its length, as its bytes in memory. */
const rows = (tokens: Uint32Array): Uint8Array[] =>
  Array.from(
    { length: Math.floor(tokens.length / ROW) },
    (_, i) => new Uint8Array(tokens.slice(i * ROW, (i + 1) * ROW).buffer),
  );

// Every decode runs on the same thread.
process.env['UV_THREADPOOL_SIZE'] = '1';

t.test('after an account is closed its token ids are in no memory that the engine uses', async (t) => {
  const prefixCache = { bytes: 2 ** 28, maxAgeMs: 3_600_000 };
  const engine = await RealEngine.start(t, {
    seats: 2,
    contextPerSeat: 1024,
    prefillTokensPerStep: CHUNK,
    prefixCache,
  });
  const run = async (id: number, salt: number, scope: string): Promise<void> => {
    engine.generate(id, { prompt: tokenPrompt(ids(salt)), maxTokens: 8, scope });
    await engine.output(id, 'done');
  };
  // Two of acme in sequences, then two in the cache.
  for (const [id, salt] of [1, 2].entries()) await run(id + 1, salt, 'acme');
  for (const [id, salt] of [3, 4].entries()) await run(id + 3, salt, 'globex');
  const own = [...rows(ids(1)), ...rows(ids(2))];
  await engine.reports(({ cache }) => cache.entries === 2);
  t.ok(countInMemory(engine.pid, own) >= own.length, 'the cache has them');
  engine.forget('acme');
  await engine.reports(({ cache }) => cache.entries === 0);
  await run(5, 5, 'globex');
  // The addon and llama.cpp free their batch buffers without clearing them: a chunk of the main thread, and one of the
  // decoding thread.
  const left = countInMemory(engine.pid, own);
  t.ok(left <= (2 * CHUNK) / ROW, `${left} of ${own.length} rows`);
  t.ok(countInMemory(engine.pid, rows(ids(5))) > 0, 'those of another account are still there');
  t.match(readFileSync(`/proc/${engine.pid}/coredump_filter`, 'utf8'), /^0+\n$/, 'a core dump would have none');
});
