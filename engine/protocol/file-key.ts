/**
 * Identifies the files of a model's weights and their content without reading them: the sidecar hashes them once, and each engine
 * loads them with that hash.
 */
import { statSync } from 'node:fs';

/** A model's files as they were when they were hashed. */
export interface HashedFile {
  /** As {@link fileKey} returned it. */
  readonly key: string;
  /** SHA-256 of their content, one after another, hex. */
  readonly version: string;
}

/** The name of a split model's first file, as llama-gguf-split writes it; llama.cpp finds the others by their names. */
const FIRST_PART = /-00001-of-(\d{5})\.gguf$/;

/** More parts than any model has: so many names are looked up. */
const MOST_PARTS = 1000;

/** The files of a model, that at `path` first: all parts of a split one. They need not exist. */
export function partsOf(path: string): string[] {
  const parts = Math.min(MOST_PARTS, Number(FIRST_PART.exec(path)?.[1] ?? 1));
  const others = Array.from({ length: Math.max(0, parts - 1) }, (_, i) => {
    const number = String(i + 2).padStart(5, '0');
    return path.replace(FIRST_PART, (_, of: string) => `-${number}-of-${of}.gguf`);
  });
  return [path, ...others];
}

/**
 * Equal as long as the path leads to the same, unchanged files: of each device, inode, time of birth, size, times of the last
 * change of content and of the inode. Undefined if there is no file at the path, or its attributes cannot be read.
 */
export function fileKey(path: string): string | undefined {
  const [first, ...others] = partsOf(path).map(keyOf);
  // A part that is not there is llama.cpp's to report.
  return first === undefined ? undefined : [first, ...others].map((key = '') => key).join(',');
}

function keyOf(path: string): string | undefined {
  try {
    const { dev, ino, birthtimeNs, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, birthtimeNs, size, mtimeNs, ctimeNs].join(':');
  } catch {
    return undefined;
  }
}

/** The size of the files that a key is of, bytes. */
export function sizeIn(key: string): number {
  return key.split(',').reduce((sum, one) => sum + Number(one.split(':', 4)[3] ?? 0), 0);
}

/** Whether content or attributes of the files that a key is of were changed in the last `ms`, by the clocks of their file systems. */
export function changedWithin(key: string, ms: number): boolean {
  const since = BigInt(Date.now() - ms) * 1_000_000n;
  return key.split(',').some((one) =>
    one
      .split(':')
      .slice(-2)
      .some((at) => BigInt(at) > since),
  );
}

/**
 * Whether a file of these two keys is one on the disk that was written to in between. An inode's number is used again once its file
 * is gone, so the time of birth has to be equal too.
 */
export function writtenInPlace(one: string, other: string): boolean {
  const place = (key: string): string => key.split(':', 3).join(':');
  const others = other.split(',');
  return one.split(',').some((key, i) => key !== others[i] && place(key) === place(others[i] ?? ''));
}
