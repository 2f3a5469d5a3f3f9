/** Keeps what takes minutes to simulate in files of one folder, a file each. */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';

/** What is kept under a name; made and kept if it is not there. */
export async function kept<T>(folder: string, name: string, make: () => Promise<T>): Promise<T> {
  const file = fileOf(folder, name);
  if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as T;
  const made = await make();
  // Renamed, so that an end in between leaves no half of a file.
  writeFileSync(`${file}.part`, JSON.stringify(made));
  renameSync(`${file}.part`, file);
  return made;
}

function fileOf(folder: string, name: string): string {
  return `${folder}/${name.replaceAll(/[^a-z0-9.]+/gi, '-')}.json`;
}
