/**
 * The head of a GGUF version 3 file: magic, counts, metadata and tensor descriptions, as ggml’s docs/gguf.md defines
 * it. Pure: values in, bytes out. gguf-writer.ts puts the head and the tensors into a file.
 */
import { Q8_0_BYTES, Q8_0_WEIGHTS } from './number-formats.js';

/** Tensor data, and each tensor within it, starts at a multiple of this many bytes. */
const GGUF_ALIGNMENT = 32;

const MAGIC = 0x46554747; // "GGUF"
const VERSION = 3;
const MAX_DIMENSIONS = 4;
const ARRAY_CODE = 9;

const VALUE_CODE = { uint8: 0, uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, uint64: 10 } as const;

/** One metadata value with its type; llama.cpp refuses a key whose type is not the one that it expects. */
export type MetadataValue =
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'uint32' | 'int32' | 'float32'; readonly value: number }
  | { readonly type: 'uint64'; readonly value: bigint }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  | { readonly type: 'uint8s' | 'int32s' | 'float32s'; readonly value: readonly number[] };

export type Metadata = ReadonlyMap<string, MetadataValue>;

/** Code, weights in a block and bytes of a block, by the type's name. */
const TENSOR_TYPES = {
  F32: { code: 0, weights: 1, bytes: 4 },
  F16: { code: 1, weights: 1, bytes: 2 },
  Q8_0: { code: 8, weights: Q8_0_WEIGHTS, bytes: Q8_0_BYTES },
} as const;

export type TensorType = keyof typeof TENSOR_TYPES;

/** What the head has of a tensor. `dimensions[0]` is the length of a row, which is contiguous in memory. */
export interface TensorDescription {
  readonly name: string;
  readonly type: TensorType;
  readonly dimensions: readonly number[];
}

/** Bytes of a tensor’s data, without padding. Throws a RangeError if the type cannot have that shape. */
export function tensorBytes(tensor: TensorDescription): number {
  const { weights, bytes } = TENSOR_TYPES[tensor.type];
  const count = tensor.dimensions.reduce((product, dimension) => product * dimension, 1);
  const sound =
    tensor.dimensions.length >= 1 &&
    tensor.dimensions.length <= MAX_DIMENSIONS &&
    tensor.dimensions.every((dimension) => Number.isInteger(dimension) && dimension > 0) &&
    Number.isSafeInteger(count) &&
    (tensor.dimensions[0] ?? 0) % weights === 0;
  if (!sound)
    throw new RangeError(`${tensor.name}: ${tensor.type} cannot have the shape ${tensor.dimensions.join('x')}`);
  return (count / weights) * bytes;
}

/** `bytes` rounded up to the alignment. */
export function aligned(bytes: number): number {
  return Math.ceil(bytes / GGUF_ALIGNMENT) * GGUF_ALIGNMENT;
}

/** The file's head, padded to the alignment; the first tensor's data follows it directly, each padded likewise. */
export function encodeHead(metadata: Metadata, tensors: readonly TensorDescription[]): Uint8Array {
  const names = new Set(tensors.map((tensor) => tensor.name));
  if (names.size !== tensors.length) throw new RangeError('two tensors have the same name');
  const parts = [uint32(MAGIC), uint32(VERSION), uint64(tensors.length), uint64(metadata.size)];
  for (const [key, value] of metadata) parts.push(text(key), encodeValue(value));
  let offset = 0;
  for (const tensor of tensors) {
    parts.push(text(tensor.name), uint32(tensor.dimensions.length), ...tensor.dimensions.map(uint64));
    parts.push(uint32(TENSOR_TYPES[tensor.type].code), uint64(offset));
    offset += aligned(tensorBytes(tensor));
  }
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  parts.push(new Uint8Array(aligned(length) - length));
  return Buffer.concat(parts);
}

function encodeValue(value: MetadataValue): Uint8Array {
  switch (value.type) {
    case 'string':
      return Buffer.concat([uint32(VALUE_CODE.string), text(value.value)]);
    case 'bool':
      return Buffer.concat([uint32(VALUE_CODE.bool), Uint8Array.of(value.value ? 1 : 0)]);
    case 'uint32':
      return Buffer.concat([uint32(VALUE_CODE.uint32), uint32(value.value)]);
    case 'int32':
      return Buffer.concat([uint32(VALUE_CODE.int32), bytesOf(Int32Array.of(value.value))]);
    case 'float32':
      return Buffer.concat([uint32(VALUE_CODE.float32), bytesOf(Float32Array.of(value.value))]);
    case 'uint64':
      return Buffer.concat([uint32(VALUE_CODE.uint64), uint64(value.value)]);
    case 'strings':
      return array(VALUE_CODE.string, value.value.length, Buffer.concat(value.value.map(text)));
    case 'uint8s':
      return array(VALUE_CODE.uint8, value.value.length, Uint8Array.from(value.value));
    case 'int32s':
      return array(VALUE_CODE.int32, value.value.length, bytesOf(Int32Array.from(value.value)));
    case 'float32s':
      return array(VALUE_CODE.float32, value.value.length, bytesOf(Float32Array.from(value.value)));
  }
}

function array(code: number, length: number, items: Uint8Array): Uint8Array {
  return Buffer.concat([uint32(ARRAY_CODE), uint32(code), uint64(length), items]);
}

function text(value: string): Uint8Array {
  const utf8 = Buffer.from(value, 'utf8');
  return Buffer.concat([uint64(utf8.length), utf8]);
}

function uint32(value: number): Uint8Array {
  return bytesOf(Uint32Array.of(value));
}

function uint64(value: number | bigint): Uint8Array {
  return bytesOf(BigUint64Array.of(BigInt(value)));
}

function bytesOf(numbers: ArrayBufferView): Uint8Array {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
}
