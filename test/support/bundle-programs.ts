/**
 * Writes the programs that tests start most often, the sidecar and its child processes, as few modules: to load 340 modules
 * one by one takes an eighth of the processor time of a start. `make test` starts these; `make test-long` and a test
 * that is run alone start the modules as they are shipped.
 */
import { rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, type Plugin } from 'esbuild';

/** What is started as a process or as a thread. */
const ENTRIES = [
  'sidecar/cli',
  'sidecar/engine-client/weight-hasher',
  'sidecar/prompts/host',
  'sidecar/prompts/worker',
  'sidecar/prompts/compiler',
  'engine/main',
  'engine/inspect',
  'engine/vision',
  'engine/remote/main',
  'engine/llama/mask-worker',
  'engine/protocol/parent-watch-thread',
].map((name) => `${name}.js`);

/** `dist`: the compiler's folder; `folder`: where each program gets the path that it has in `dist`. */
export async function bundlePrograms(dist: string, folder: string): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  await build({
    entryPoints: ENTRIES.map((path) => join(dist, path)),
    outdir: folder,
    outbase: dist,
    bundle: true,
    // What several programs use is one module for all.
    splitting: true,
    chunkNames: 'shared/[hash]',
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    plugins: [inPlace(resolve(dist), resolve(folder))],
    logLevel: 'warning',
  });
}

/** Where a module asks for its own URL it gets that of the file in `dist`, but URLs of programs are those of `folder`. */
function inPlace(dist: string, folder: string): Plugin {
  const programs = new Map(ENTRIES.map((path) => [join(dist, path), join(folder, path)]));
  const textOf = (path: string): string => JSON.stringify(pathToFileURL(path).href);
  return {
    name: 'in place',
    setup: (builds) =>
      builds.onLoad({ filter: /\.js$/ }, async ({ path }) => {
        if (relative(dist, path).startsWith('..')) return undefined;
        const text = await readFile(path, 'utf8');
        const contents = text
          .replace(/new URL\('([^']+)', import\.meta\.url\)/g, (found, to: string) => {
            const program = programs.get(resolve(path, '..', to));
            return program === undefined ? found : `new URL(${textOf(program)})`;
          })
          .replaceAll('import.meta.url', textOf(path));
        return { contents };
      }),
  };
}
