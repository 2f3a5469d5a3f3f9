/**
 * The effect of KV in other number formats on the embedded model’s loss on held-out replies, and a seat’s memory then.
 */
import { heldOutLoss } from '../support/held-out-loss.js';
import { keep, type Row } from '../support/results.js';

const TOKENS = 4000;
/** Bytes of 32 numbers. */
const BLOCK = { f16: 64, q8_0: 34, q4_0: 18 } as const;

const rows: Row[] = [];
let exact = NaN;
for (const type of ['f16', 'q8_0', 'q4_0'] as const) {
  const loss = await heldOutLoss({ keys: type, values: type }, TOKENS);
  if (type === 'f16') exact = loss;
  rows.push({
    'kv.keys and kv.values': type,
    'bytes, of f16': BLOCK[type] / BLOCK.f16,
    'loss, nats a token': loss.toFixed(4),
    'difference, percent': (100 * (loss / exact - 1)).toFixed(3),
  });
}
await keep('seedling-kv', {
  title: 'Number formats of past state',
  about: [
    `The mean negative log-likelihood of ${TOKENS} tokens of replies to chats kept from the seedling's training, each behind its own prompt. Attention is llama.cpp's flash attention in all rows.`,
  ],
  rows,
  simulated: true,
});
