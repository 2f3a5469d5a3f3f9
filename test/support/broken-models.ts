import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { testModel } from './models.js';

/** The damage of a valid model, by a name. */
export type Damage = keyof typeof DAMAGES;

/** The end of a key’s or a tensor’s name; its type and value, or its dimensions, follow. */
function after(file: Buffer, name: string): number {
  const at = file.indexOf(name);
  if (at < 0) throw new Error(`the test model has no ${name}`);
  return at + Buffer.byteLength(name);
}

const TENSOR = 'blk.1.attn_q.weight';
const HUGE = 1n << 50n;

/** The value of a uint32 key, which follows its type. */
function setKey(file: Buffer, key: string, value: number): void {
  file.writeUInt32LE(value, after(file, key) + 4);
}

const DAMAGES = {
  empty: () => Buffer.alloc(0),
  garbage: () => Buffer.from('not a model '.repeat(1000)),
  'cut in the header': (file: Buffer) => file.subarray(0, 12),
  'cut in the metadata': (file: Buffer) => file.subarray(0, 3000),
  'cut in the tensor data': (file: Buffer) => file.subarray(0, file.length >> 1),
  'cut in the last tensor': (file: Buffer) => file.subarray(0, file.length - 100),
  'of another version': (file: Buffer) => void file.writeUInt32LE(99, 4),
  'with absurdly many tensors': (file: Buffer) => void file.writeBigUInt64LE(HUGE, 8),
  'with absurdly many keys': (file: Buffer) => void file.writeBigUInt64LE(HUGE, 16),
  'with a few keys too many': (file: Buffer) => void file.writeBigUInt64LE(40n, 16),
  'with an absurdly long key': (file: Buffer) => void file.writeBigUInt64LE(HUGE, 24),
  // A name’s end is followed by the array’s type code, its items’ type code and its length.
  'with an absurdly long list': (file: Buffer) =>
    void file.writeBigUInt64LE(HUGE, after(file, 'tokenizer.ggml.tokens') + 8),
  'with an unknown type of value': (file: Buffer) =>
    void file.writeUInt32LE(77, after(file, 'tokenizer.ggml.tokens') + 4),
  'of an unknown architecture': (file: Buffer) =>
    // The value’s length is between the type code and the text.
    void file.write('zzzzz', after(file, 'general.architecture') + 12),
  'without a tensor': (file: Buffer) => void file.write('X', after(file, 'blk.1.attn_')),
  'with a tensor of a wrong shape': (file: Buffer) => void file.writeBigUInt64LE(32n, after(file, TENSOR) + 12),
  'with a tensor beyond the file': (file: Buffer) => void file.writeBigUInt64LE(HUGE, after(file, TENSOR) + 24),
  'with heads that do not fit its tensors': (file: Buffer) => setKey(file, 'llama.attention.head_count_kv', 3),
  'without a tokenizer': (file: Buffer) => void file.write('X', after(file, 'tokenizer.ggml.mode')),
  // llama.cpp asserts on these two.
  'with no heads': (file: Buffer) => setKey(file, 'llama.attention.head_count', 0),
  'with absurdly many layers': (file: Buffer) => setKey(file, 'llama.block_count', 0x7fffffff),
} satisfies Record<string, (file: Buffer) => unknown>;

/** Path of a damaged copy of the test model in `dir`. */
export async function brokenModel(dir: string, damage: Damage): Promise<string> {
  const file = await readFile(await testModel());
  const made = DAMAGES[damage](file);
  const path = join(dir, `${damage.replaceAll(' ', '-')}.gguf`);
  await writeFile(path, made instanceof Buffer ? made : file);
  return path;
}
