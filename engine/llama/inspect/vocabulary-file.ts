import { constants } from 'node:fs';
import { copyFile, open, rm } from 'node:fs/promises';
import type { VocabularyWritten } from '../../protocol/inspect-messages.js';
import { checkModelFile } from '../model-file.js';

/** Where a GGUF has the number of its tensors. */
const TENSORS_AT = 8;

/**
 * Writes a model's metadata alone, which has its tokenizer and its chat template, as a file without tensors. A file that is
 * there is not overwritten.
 */
export async function writeVocabulary(file: string, out: string): Promise<VocabularyWritten> {
  const checked = checkModelFile(file);
  if (checked.kind === 'bad') return { kind: 'refused', problem: checked.problem };
  const { metadataBytes, splitCountAt } = checked;
  try {
    const from = await open(file, 'r');
    try {
      const bytes = Buffer.alloc(metadataBytes);
      await from.read(bytes, 0, metadataBytes, 0);
      bytes.writeBigUInt64LE(0n, TENSORS_AT);
      // It is whole: of a split model llama.cpp would look for the other parts.
      if (splitCountAt !== undefined) bytes.writeUInt16LE(0, splitCountAt);
      await writeNew(out, bytes);
    } finally {
      await from.close();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    return { kind: 'refused', problem: code === 'EEXIST' ? `${out} exists` : `${out} cannot be written (${code})` };
  }
  return { kind: 'written', bytes: metadataBytes };
}

/** Whole, or not at all. */
async function writeNew(path: string, bytes: Buffer): Promise<void> {
  const part = `${path}.part-${process.pid}`;
  const to = await open(part, 'wx');
  try {
    await to.writeFile(bytes);
    await to.close();
    await copyFile(part, path, constants.COPYFILE_EXCL);
  } finally {
    await to.close().catch(() => undefined);
    await rm(part, { force: true });
  }
}
