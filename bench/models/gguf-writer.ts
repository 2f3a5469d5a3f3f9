/**
 * Writes a GGUF file tensor by tensor, so that memory stays at one piece of one tensor whatever the model’s size. A
 * reader never sees a half-written file: the bytes are written under this process’s own name and renamed at the end.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { aligned, encodeHead, tensorBytes, type Metadata, type TensorDescription } from './gguf-format.js';

/** A tensor and the function that makes its data. */
export interface TensorSource extends TensorDescription {
  /**
   * Called once, when the tensor’s turn has come. The pieces add up to `tensorBytes()`. A piece is written before the
   * next is requested, so a source may yield the same buffer repeatedly.
   */
  readonly data: () => Iterable<Uint8Array>;
}

/** The part of a temporary name between the final name and the writer’s mark. */
export const PARTIAL_MARK = '.partial-';

/**
 * Writes `path`, and creates its folder. An existing file is replaced in one step; processes that have it open keep the
 * old one. Rejects, and leaves neither the file nor a partial one, if a source throws, a source yields another number
 * of bytes than its shape needs, or the disk fails; a process that is killed leaves its partial file.
 */
export async function writeGguf(path: string, metadata: Metadata, tensors: readonly TensorSource[]): Promise<void> {
  const head = encodeHead(metadata, tensors);
  await mkdir(dirname(path), { recursive: true });
  const partial = `${path}${PARTIAL_MARK}${process.pid}-${randomBytes(4).toString('hex')}`;
  try {
    const file = await open(partial, 'wx');
    try {
      await writeAll(file, head);
      for (const tensor of tensors) await writeTensor(file, tensor);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

async function writeTensor(file: FileHandle, tensor: TensorSource): Promise<void> {
  const expected = tensorBytes(tensor);
  let written = 0;
  for (const piece of tensor.data()) {
    written += piece.length;
    if (written > expected) break;
    await writeAll(file, piece);
  }
  if (written !== expected) {
    throw new RangeError(`${tensor.name}: its source gave ${written} bytes or more, its shape needs ${expected}`);
  }
  await writeAll(file, new Uint8Array(aligned(expected) - expected));
}

/** A single write may write less than it is given. */
async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done);
    done += bytesWritten;
  }
}
