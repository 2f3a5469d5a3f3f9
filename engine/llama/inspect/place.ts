/** Gives downloaded files their names: all of them or none, and never over a file that is there. */
import { link, open, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Refusal } from './refusal.js';

/** A file of a model; a split one has several. */
export interface ModelPart {
  readonly name: string;
  readonly bytes: number;
}

/** What file systems say that have no hard links, or none for this user. */
const NO_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/**
 * Whether all parts are in `dir`: one of the same name and size is taken for the same file. Throws a {@link Refusal} when
 * another file has a part's name.
 */
export async function areThere(parts: readonly ModelPart[], dir: string): Promise<boolean> {
  const sizes = await Promise.all(parts.map(({ name }) => sizeOf(join(dir, name))));
  const other = parts.find(({ bytes }, i) => sizes[i] !== undefined && sizes[i] !== bytes);
  if (other) throw new Refusal(inTheWay(other.name));
  return sizes.every((size) => size !== undefined);
}

/** Moves whole parts from one folder into another of the same file system. A part that is there already stays. */
export async function placeAll(parts: readonly ModelPart[], from: string, dir: string, linked = link): Promise<void> {
  const placed: string[] = [];
  try {
    for (const { name, bytes } of parts) {
      const to = join(dir, name);
      if ((await sizeOf(to)) === bytes) continue;
      await place(join(from, name), to, linked);
      placed.push(to);
    }
  } catch (error) {
    for (const path of placed) await rm(path, { force: true });
    throw error;
  }
}

async function place(from: string, to: string, linked: typeof link): Promise<void> {
  try {
    await linked(from, to).catch((error: unknown) => {
      if (!NO_LINKS.has((error as NodeJS.ErrnoException).code)) throw error;
      return renamed(from, to);
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw new Refusal(inTheWay(to));
    throw error;
  }
}

/** A rename replaces what has the name, so the name is taken first by an empty file of ours. */
async function renamed(from: string, to: string): Promise<void> {
  await (await open(to, 'wx')).close();
  try {
    await rename(from, to);
  } catch (error) {
    await rm(to, { force: true });
    throw error;
  }
}

function inTheWay(name: string): string {
  return `a file ${basename(name)} is there already and is another one: move it away, or use another --dir`;
}

async function sizeOf(file: string): Promise<number | undefined> {
  return await stat(file).then(
    ({ size }) => size,
    () => undefined,
  );
}
