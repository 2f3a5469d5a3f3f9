/** Splits a GGUF file as `llama-gguf-split --no-tensor-first-split` does: the metadata in one file, all tensors in a second one. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readHead } from '../../engine/llama/gguf-head.js';

const ALIGNMENT = 32;
const UINT16 = 2;
const INT32 = 5;

/** Writes both parts into `dir`; returns their paths. */
export async function splitModel(file: string, dir: string): Promise<readonly [first: string, second: string]> {
  const bytes = await readFile(file);
  const head = readHead({ size: bytes.length, read: (offset, length) => bytes.subarray(offset, offset + length) });
  if (head.kind === 'bad') throw new Error(head.problem);
  const { tensors, metadataBytes } = head;
  const infos = bytes.subarray(metadataBytes, endOfInfos(bytes, metadataBytes, tensors));
  const data = bytes.subarray(aligned(metadataBytes + infos.length));
  const entries = Number(bytes.readBigUInt64LE(16));
  const paths = [join(dir, 'split-00001-of-00002.gguf'), join(dir, 'split-00002-of-00002.gguf')] as const;
  const split = (part: number): Buffer[] => [
    entry('split.no', UINT16, part),
    entry('split.count', UINT16, 2),
    entry('split.tensors.count', INT32, tensors),
  ];
  await writeFile(paths[0], Buffer.concat([start(0, entries + 3), bytes.subarray(24, metadataBytes), ...split(0)]));
  const second = Buffer.concat([start(tensors, 3), ...split(1), infos]);
  await writeFile(paths[1], Buffer.concat([second, Buffer.alloc(aligned(second.length) - second.length), data]));
  return paths;
}

function aligned(offset: number): number {
  return Math.ceil(offset / ALIGNMENT) * ALIGNMENT;
}

function endOfInfos(bytes: Buffer, from: number, tensors: number): number {
  let at = from;
  for (let i = 0; i < tensors; i += 1) {
    at += 8 + Number(bytes.readBigUInt64LE(at));
    at += 4 + bytes.readUInt32LE(at) * 8 + 4 + 8;
  }
  return at;
}

/** Magic, version and the two counts. */
function start(tensors: number, entries: number): Buffer {
  const bytes = Buffer.alloc(24);
  bytes.write('GGUF');
  bytes.writeUInt32LE(3, 4);
  bytes.writeBigUInt64LE(BigInt(tensors), 8);
  bytes.writeBigUInt64LE(BigInt(entries), 16);
  return bytes;
}

function entry(key: string, type: typeof UINT16 | typeof INT32, value: number): Buffer {
  const bytes = Buffer.alloc(8 + key.length + 4 + (type === UINT16 ? 2 : 4));
  bytes.writeBigUInt64LE(BigInt(key.length));
  bytes.write(key, 8);
  const at = 8 + key.length;
  bytes.writeUInt32LE(type, at);
  if (type === UINT16) bytes.writeUInt16LE(value, at + 4);
  else bytes.writeInt32LE(value, at + 4);
  return bytes;
}
