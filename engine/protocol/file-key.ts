/**
 * Identifies a file of weights and its content without reading it: the sidecar hashes a file once, and each engine
 * loads the file with that hash.
 */
import { statSync } from 'node:fs';

/** A file as it was when it was hashed. */
export interface HashedFile {
  /** As {@link fileKey} returned it. */
  readonly key: string;
  /** SHA-256 of its content, hex. */
  readonly version: string;
}

/**
 * Equal as long as the path leads to the same, unchanged file: device, inode, time of birth, size, times of the last
 * change of content and of the inode. Undefined: there is no such file, or its attributes cannot be read.
 */
export function fileKey(path: string): string | undefined {
  try {
    const { dev, ino, birthtimeNs, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, birthtimeNs, size, mtimeNs, ctimeNs].join(':');
  } catch {
    return undefined;
  }
}

/** The size of the file that a key is of, bytes. */
export function sizeIn(key: string): number {
  return Number(key.split(':', 4)[3]);
}

/**
 * Whether two keys are of one file on the disk, whatever was written to it. An inode's number is used again once its file is gone,
 * so the time of birth has to be equal too.
 */
export function samePlace(one: string, other: string): boolean {
  const place = (key: string): string => key.split(':', 3).join(':');
  return place(one) === place(other);
}
