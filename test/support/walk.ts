/** The steps of docs/architecture.md, "The path of a request", and the files that each names. */
import { readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/** The files of each step, from the repository’s root. A file without a folder is in the folder of the one before it. */
export function walkOf(page: string): string[][] {
  const section = page.slice(page.indexOf('\n## The path of a request\n'));
  const rows = section.slice(0, section.indexOf('\n## ', 1)).matchAll(/^- \*\*\d+\.\*\* (.*)$/gm);
  return Array.from(rows, ([, cell = '']) => {
    let folder = '';
    return Array.from(cell.matchAll(/`([^`]+\.ts)`/g), ([, name = '']) => {
      if (name.includes('/')) folder = dirname(name);
      return name.includes('/') ? name : join(folder, name);
    });
  });
}

/** The repository’s files that a source imports, types and imports at run time included. */
export function importsOf(root: string, path: string): string[] {
  const text = readFileSync(join(root, path), 'utf8');
  return Array.from(text.matchAll(/(?:^(?:import|export|\}).* from |\bimport\()'(\.[^']+)\.js'/gm), ([, to = '']) =>
    relative(root, resolve(root, dirname(path), `${to}.ts`)),
  );
}
