/** States in pages of the CPU's memory, which a GPU's differ from only in who copies. */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import type { LlamaContext } from 'node-llama-cpp';
import t from 'tap';
import { internals } from '../../../../engine/llama/addon.js';
import { BatchDecoder } from '../../../../engine/llama/batch-decoder.js';
import { PAGE } from '../../../../engine/llama/paged-states.js';
import { decodeOnce } from '../../../../engine/scheduler/decoder.js';
import { keepsDecoderContract } from '../../../support/decoder-contract.js';
import { cpuLlama } from '../../../support/llama.js';
import { testModel } from '../../../support/models.js';

const CHUNK = 512;
const TOKENS = 12 * CHUNK;
/** Bytes of memory that are read at a time. */
const CHUNK_BYTES = 65_536;
/** Bytes by which a state is recognised. */
const PIECE = 64;
/** Bytes before a state in a file, of llama.cpp's own. */
const MAGIC = 8;

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());

const context = (contextSize: number): Promise<LlamaContext> =>
  model.createContext({
    sequences: 3,
    contextSize,
    batchSize: CHUNK,
    threads: 1,
    experimentalKvCacheKeyType: 'F32',
    experimentalKvCacheValueType: 'F32',
  });

const paged = async (made: LlamaContext, bytes: number, plain = true): Promise<BatchDecoder> => {
  const decoder = await BatchDecoder.create(made, 1, true, false, false, 'cpu', { bytes, plain });
  await decoder.pages?.settled();
  return decoder;
};

t.test('a decoder with pages fulfils the contract of the port', async (t) => {
  const made = await context(256);
  const decoder = await paged(made, 4 * PAGE);
  t.ok(decoder.pages);
  await keepsDecoderContract(t, decoder);
  t.equal(decoder.states.room, 4 * PAGE, 'all pages are free again');
  await decoder.pages?.dispose();
  await made.dispose();
});

/** Evaluates a prompt in sequence 0. */
async function fill(decoder: BatchDecoder): Promise<void> {
  const prompt = Uint32Array.from({ length: TOKENS }, (_, i) => 60 + ((i * 7) % 90));
  for (let at = 0; at < TOKENS; at += CHUNK)
    await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: prompt.subarray(at, at + CHUNK) }]);
}

t.test('a state of several pages is restored bit for bit, and its pages are used again', async (t) => {
  const made = await context(TOKENS + 64);
  const decoder = await paged(made, 5 * PAGE);
  const { states, pages } = decoder;
  await fill(decoder);
  const scores = async (sequence: number): Promise<number[]> => {
    const labels = Uint32Array.of(70, 71, 72);
    const [result] = await decodeOnce(decoder, [{ kind: 'score', sequence, tokens: Uint32Array.of(61, 62), labels }]);
    if (result?.kind !== 'scores') throw new Error('no scores');
    await states.truncate(sequence, sequence === 0 ? TOKENS : 0);
    return [...result.logprobs];
  };
  const expected = await scores(0);
  const saved: Awaited<ReturnType<typeof states.saveWhole>>[] = [];
  for (;;) {
    try {
      saved.push(await states.saveWhole(0));
    } catch (error) {
      t.match(error, /no pages/);
      break;
    }
  }
  const [first, last] = [saved[0], saved.at(-1)];
  if (!first || !last) throw new Error('nothing was saved');
  t.ok(first.bytes > PAGE && first.bytes % PAGE === 0, `${first.bytes} bytes`);
  t.equal(saved.length, Math.floor((5 * PAGE) / first.bytes));
  t.equal(states.room, 5 * PAGE - saved.length * first.bytes, 'a save that found too few pages keeps none');
  first.dispose();
  const again = await states.saveWhole(0);
  for (const state of [last, again]) {
    await states.restoreWhole(1, state);
    t.same(await scores(1), expected);
  }
  last.dispose();
  const { context: inner } = internals(made);
  const own = await pages?.save(inner, 0, { length: TOKENS, last: TOKENS - 1 });
  const restoring = own?.restore(inner, 2);
  const disposing = pages?.dispose();
  await restoring;
  t.equal(inner.getSequenceKvCacheMaxPosition(2), TOKENS - 1, 'memory is freed after a copy that runs');
  await disposing;
  await t.rejects(states.saveWhole(0), /no pages/);
  await t.rejects(states.restoreWhole(1, again), /freed/);
  await made.dispose();
});

t.test('behind a state its last page has nothing of the state that it had before', async (t) => {
  const made = await context(TOKENS + 64);
  const decoder = await paged(made, 16 * PAGE);
  const { context: inner, addon } = internals(made);
  await fill(decoder);
  await decodeOnce(decoder, [{ kind: 'prefill', sequence: 1, tokens: Uint32Array.of(71, 62, 83) }]);
  const size = addon.raStateSize(inner, 1, false);
  const end = size - MAGIC;
  t.ok(size < PAGE, `${size} bytes`);
  const file = openSync(`${t.testdir()}/state`, 'w+');
  await addon.raSaveState(inner, 1, file);
  const [first, last] = [Buffer.alloc(PIECE), Buffer.alloc(PIECE)];
  readSync(file, first, 0, PIECE, MAGIC);
  readSync(file, last, 0, PIECE, size - PIECE);
  closeSync(file);
  const long: { dispose(): void }[] = [];
  const bytes = Math.ceil(addon.raStateSize(inner, 0, false) / PAGE) * PAGE;
  for (let to = bytes; to <= 16 * PAGE; to += bytes) long.push(await decoder.states.saveWhole(0));
  for (const state of long) state.dispose();
  await decoder.states.saveWhole(1);
  const found = memoryFrom(first, PAGE).filter((page) => page.subarray(end - PIECE, end).equals(last));
  t.ok(found.length > 0);
  for (const page of found) t.ok(page.subarray(end).every((byte) => byte === 0));
  await decoder.pages?.dispose();
  await made.dispose();
});

/** Whatever this process's memory has from each place on that begins with these bytes. */
function memoryFrom(beginning: Uint8Array, bytes: number): Buffer[] {
  const memory = openSync('/proc/self/mem', 'r');
  const found: Buffer[] = [];
  for (const [, from = '', to = ''] of readFileSync('/proc/self/maps', 'utf8').matchAll(/^(\w+)-(\w+) rw-p/gm)) {
    const start = Number.parseInt(from, 16);
    const region = Buffer.alloc(Number.parseInt(to, 16) - start);
    for (let at = 0; at < region.length; at += CHUNK_BYTES) {
      try {
        readSync(memory, region, at, Math.min(CHUNK_BYTES, region.length - at), start + at);
      } catch {
        // Freed meanwhile, or never written.
      }
    }
    for (let at = region.indexOf(beginning); at >= 0; at = region.indexOf(beginning, at + 1)) {
      if (at + bytes <= region.length) found.push(Buffer.from(region.subarray(at, at + bytes)));
    }
  }
  closeSync(memory);
  return found;
}

t.test('the CPU has no memory of this kind, and states are in files', async (t) => {
  const made = await context(64);
  const { pages, states } = await paged(made, 4 * PAGE, false);
  t.notOk(pages);
  t.equal(states.room, undefined);
  const { addon, context: inner } = internals(made);
  const { found, size, name } = new addon.RaStatePages(inner, false);
  t.same({ found, size, name }, { found: false, size: 0, name: '' });
  await made.dispose();
});
