/** Edits of source files from this repository's own history: what an agent that edits code is asked, and what it writes. */
import { execFileSync } from 'node:child_process';
import { sourceRoot } from '../../test/support/source-root.js';

export interface Edit {
  /** The subject of its commit. */
  readonly request: string;
  readonly before: string;
  readonly after: string;
}

/** Bytes of a file: some 250 to 800 tokens. */
const BYTES = { least: 800, most: 2400 } as const;

/** Edits are of this commit and those before it, so that each run has the same ones. */
const LAST = 'a1847e66dc13d0b9219e444b3d2074200d973bd6';

/** Commits that are looked at for each edit. */
const COMMITS = 40;

/** The last `count` edits of TypeScript files until a certain commit, at most one of a commit and one of a file. Needs the history; throws where it has fewer. */
export function knownEdits(count: number): Edit[] {
  const log = git(
    'log',
    '--no-merges',
    '--diff-filter=M',
    '--name-only',
    '--format=%x00%H %s',
    `-${COMMITS * count}`,
    LAST,
    '--',
    '*.ts',
  );
  const edits = new Map<string, Edit>();
  for (const commit of log.split('\0').slice(1)) {
    const [head = '', ...files] = commit.split('\n').filter((line) => line !== '');
    const [hash, request] = [head.slice(0, head.indexOf(' ')), head.slice(head.indexOf(' ') + 1)];
    const file = files.find((each) => !edits.has(each));
    if (file === undefined) continue;
    const [before, after] = [git('show', `${hash}~1:${file}`), git('show', `${hash}:${file}`)];
    if ([before, after].every(({ length }) => length >= BYTES.least && length <= BYTES.most))
      edits.set(file, { request, before, after });
    if (edits.size === count) return [...edits.values()];
  }
  throw new Error(`the history has ${edits.size} edits, and the bench needs ${count}`);
}

/** Of a text that is quoted: characters that a line has at least, and every how manieth line it is, up to so many. */
const QUOTED = { least: 24, each: 3, most: 8 } as const;

/** A list of some lines of the earlier text, each with a number, as an agent answers that finds places in a text. */
export function quotesOf({ before }: Edit): string {
  const lines = before.split('\n').filter((line) => line.trim().length >= QUOTED.least);
  const found = lines.filter((_, i) => i % QUOTED.each === 0).slice(0, QUOTED.most);
  return JSON.stringify(found.map((quote, line) => ({ line, quote })));
}

/** The schema of such lists. */
export const QUOTES = {
  type: 'array',
  items: {
    type: 'object',
    properties: { line: { type: 'integer' }, quote: { type: 'string' } },
    required: ['line', 'quote'],
  },
} as const;

/**
 * Both texts with other ids, so that the later one counts upwards from `first`: what a model says that always says the next id. Lines
 * that the earlier text has too have the same ids there; its other tokens get ids after those of the later text. A line's tokens come
 * from `tokenize`.
 */
export function counted(
  { before, after }: Edit,
  first: number,
  tokenize: (text: string) => readonly number[],
): { readonly before: readonly number[]; readonly after: readonly number[] } {
  const [old, made] = [linesOf(before), linesOf(after)];
  const lengths = made.map((line) => tokenize(line).length);
  const starts = lengths.map((_, i) => first + lengths.slice(0, i).reduce((sum, each) => sum + each, 0));
  const all = lengths.reduce((sum, each) => sum + each, 0);
  const same = commonLines(old, made);
  let fresh = first + all;
  const ids = old.flatMap((line, i) => {
    const at = same.get(i);
    const length = at === undefined ? tokenize(line).length : (lengths[at] ?? 0);
    const from = at === undefined ? fresh : (starts[at] ?? 0);
    if (at === undefined) fresh += length;
    return Array.from({ length }, (_, k) => from + k);
  });
  return { before: ids, after: Array.from({ length: all }, (_, k) => first + k) };
}

function linesOf(text: string): string[] {
  return text.split(/(?<=\n)/);
}

/** The longest common subsequence: of its lines in `old` the index that each has in `made`. */
function commonLines(old: readonly string[], made: readonly string[]): ReadonlyMap<number, number> {
  const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(made.length + 1));
  const at = (i: number, j: number): number => table[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = made.length - 1; j >= 0; j -= 1) {
      const row = table[i];
      if (row) row[j] = old[i] === made[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  const same = new Map<number, number>();
  for (let [i, j] = [0, 0]; i < old.length && j < made.length;)
    if (old[i] === made[j]) same.set(i++, j++);
    else if (at(i + 1, j) >= at(i, j + 1)) i += 1;
    else j += 1;
  return same;
}

function git(...args: readonly string[]): string {
  return execFileSync('git', args, { cwd: sourceRoot, encoding: 'utf8', maxBuffer: 1 << 26 });
}
