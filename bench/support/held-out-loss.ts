/** The loss of the embedded model on replies that it was not trained on, by the number format of its KV. */
import { decodeOnce } from '../../engine/scheduler/decoder.js';
import { fileURLToPath } from 'node:url';
import { loadRuntime } from '../../engine/llama/runtime.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import type { KvTypes } from '../../engine/protocol/setup.js';
import { chatAt } from '../seedling/mix.js';
import { ROW, RowMaker } from '../seedling/rows.js';

const SEEDLING = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
/** Seeds of chats; those of training are others. */
const SEED = 21;
/** Weights of a row’s target, in hundredths, from which on it belongs to the reply. */
const REPLY_WEIGHT = 40;
const CONTEXT = 8192;
const CHUNK = 256;

interface HeldOutChat {
  readonly tokens: Uint32Array;
  /** Tokens of the prompt. */
  readonly prompt: number;
}

/**
 * Mean negative log-likelihood in nats, over the first `tokens` tokens of held-out replies, each after its own prompt.
 */
export async function heldOutLoss(kv: KvTypes, tokens: number): Promise<number> {
  const chats = await heldOutChats(tokens);
  const runtime = await loadRuntime({
    file: SEEDLING,
    kind: 'chat',
    seats: 1,
    contextPerSeat: CONTEXT,
    threads: 1,
    gpu: false,
    flashAttention: true,
    prefillTokensPerStep: CHUNK,
    prefillShare: 100,
    prefixReuse: 'off',
    heartbeatMs: 1000,
    kv,
  });
  try {
    const { decoder } = runtime;
    let [sum, scored] = [0, 0];
    for (const { tokens: ids, prompt } of chats) {
      await decoder.states.truncate(0, 0);
      const lead = prompt - 1;
      for (let at = 0; at < lead; at += CHUNK) {
        const chunk = ids.subarray(at, Math.min(at + CHUNK, lead));
        await decodeOnce(decoder, [{ kind: 'prefill', sequence: 0, tokens: chunk }]);
      }
      for (let at = prompt; at < ids.length && scored < tokens; at += 1, scored += 1) {
        const [before, labels] = [ids.subarray(at - 1, at), ids.subarray(at, at + 1)];
        const [result] = await decodeOnce(decoder, [{ kind: 'score', sequence: 0, tokens: before, labels }]);
        if (result?.kind !== 'scores') throw new Error('no score');
        sum -= result.logprobs[0] ?? NaN;
      }
    }
    return sum / scored;
  } finally {
    await runtime.dispose();
  }
}

/** Chats whose replies have `tokens` tokens together, or some more. */
async function heldOutChats(tokens: number): Promise<readonly HeldOutChat[]> {
  const vocabulary = await loadVocabulary(SEEDLING);
  const maker = new RowMaker(vocabulary);
  const chats: HeldOutChat[] = [];
  let found = 0;
  for (let at = 0; found < tokens; at += 1) {
    const rows = maker.rows(chatAt(SEED, at, 'held'));
    const length = rows.length / ROW;
    const ids = Uint32Array.from({ length: length + 1 }, (_, i) => rows[i * ROW] ?? rows[(i - 1) * ROW + 1] ?? 0);
    const first = Array.from({ length }, (_, i) => rows[i * ROW + 2] ?? 0).findIndex(
      (weight) => weight >= REPLY_WEIGHT,
    );
    chats.push({ tokens: ids, prompt: first + 1 });
    found += length - first;
  }
  await vocabulary.dispose();
  return chats;
}
