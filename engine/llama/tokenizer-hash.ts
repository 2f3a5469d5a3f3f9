import { createHash } from 'node:crypto';
import type { GgufMetadata } from 'node-llama-cpp';

/** SHA-256 of all that a file has of its tokenizer, its chat template included, hex. */
export function tokenizerHash({ tokenizer }: Pick<GgufMetadata, 'tokenizer'>): string {
  const text = JSON.stringify(tokenizer, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
  return createHash('sha256').update(text).digest('hex');
}
