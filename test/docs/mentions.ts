/** Files of the repository that comments name: pages with their anchors, and source files. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from './pages.js';

/** The comments of one source file. */
export interface Comments {
  /** From the repository's root. */
  readonly path: string;
  /** The comment of each line of the file; lines without one are empty. */
  readonly lines: readonly string[];
}

const FOLDERS = ['sidecar', 'engine', 'bench', 'test'];
const SEARCHED = /\.(?:ts|js|cpp|css|py|sh|yml)$/;

/** Languages whose comments begin with `#`. */
const HASHED = /\.(?:py|sh|yml)$/;

/** Other projects' files, which comments cite by their path there. */
const FOREIGN: ReadonlySet<string> = new Set([
  'docs/gguf.md', // ggml's
  'bindings/AddonTypes.d.ts', // node-llama-cpp's
]);

/** A path or a name that ends in `.md` or `.ts`, or a built `.js` file; not inside an address or a pattern with `*`. */
const MENTION = /(?<![\w./*-])((?:[\w.-]+\/)*\w[\w.-]*\.(?:md|ts)|dist\/[\w./-]+\.js)\b(?:#([\w-]+))?/g;

/** The comments of all source files. */
export function readComments(root: string): Comments[] {
  return sourceFiles(root).map((path) => commentsOf(path, readFileSync(join(root, path), 'utf8')));
}

/**
 * The product's code without its comments: with the messages, advice and help texts that people read, who need the path of a page. Not
 * that of settings and metrics, whose texts become pages beside those that they name.
 */
export function readMessages(root: string): Comments[] {
  return sourceFiles(root)
    .filter((path) => /^(?:sidecar|engine)\/.*\.ts$/.test(path) && !/^sidecar\/(?:config|telemetry)\//.test(path))
    .map((path) => {
      const text = readFileSync(join(root, path), 'utf8');
      const { lines } = commentsOf(path, text);
      const code = text.split('\n').map((line, at) => line.slice(0, line.length - (lines[at] ?? '').length));
      return { path, lines: code };
    });
}

function sourceFiles(root: string): string[] {
  const below = (folder: string): string[] =>
    readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
      const path = `${folder}/${entry.name}`;
      // Folders of what benches download and build begin with a dot.
      if (entry.isDirectory()) return entry.name.startsWith('.') ? [] : below(path);
      return SEARCHED.test(entry.name) ? [path] : [];
    });
  return FOLDERS.flatMap(below);
}

/** The comments of `text`, the source of `path`. Each starts its line or follows a blank. */
export function commentsOf(path: string, text: string): Comments {
  const begin = HASHED.test(path) ? /(?<!\S)#/ : /(?<!\S)(?:\/\/|\/\*)/;
  let inBlock = false;
  const lines = text.split('\n').map((line) => {
    const start = inBlock ? 0 : line.search(begin);
    if (start < 0) return '';
    const comment = line.slice(start);
    inBlock = (inBlock || comment.startsWith('/*')) && !comment.includes('*/');
    return comment;
  });
  return { path, lines };
}

/**
 * One line for each name of a file that does not exist, and for each anchor that its page does not have. A page must be
 * named by its path from the repository’s root, a source file by that path or its end, a built file by its source.
 */
export function brokenMentions(sources: readonly Comments[], pages: readonly Page[], root: string): string[] {
  const anchors = new Map(pages.map((page) => [page.path, page.anchors]));
  const sourceNames = new Set(sourceFiles(root).flatMap(endsOf));
  const problemOf = (name: string, anchor: string | undefined): string | undefined => {
    if (FOREIGN.has(name)) return undefined;
    if (name.endsWith('.ts')) return sourceNames.has(name) ? undefined : 'no such source file';
    if (name.endsWith('.js'))
      return existsSync(join(root, name.slice('dist/'.length, -3) + '.ts')) ? undefined : 'built from no source file';
    if (!existsSync(join(root, name))) return 'no such page from the repository’s root';
    return anchor === undefined || anchors.get(name)?.has(anchor) === true ? undefined : 'no such heading';
  };
  return sources.flatMap(({ path, lines }) =>
    lines.flatMap((line, at) =>
      [...line.matchAll(MENTION)].flatMap(([mention, name = '', anchor]) => {
        const problem = problemOf(name, anchor);
        return problem === undefined ? [] : [`${path}:${at + 1}: ${mention}: ${problem}`];
      }),
    ),
  );
}

/** `a/b/c`, `b/c` and `c` of `a/b/c`. */
function endsOf(path: string): string[] {
  const parts = path.split('/');
  return parts.map((_, at) => parts.slice(at).join('/'));
}
