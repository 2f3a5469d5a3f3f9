/** The documentation as its tests read it: the list of pages, and the anchors, links, blocks and code spans of each. */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { sourceRoot } from '../support/source-root.js';

/** A fenced block. */
export interface Block {
  /** The text after the opening fence: `sh`, or `sh not-run: needs root`. */
  readonly info: string;
  readonly text: string;
  /** Line of the opening fence, from 1. */
  readonly line: number;
}

export interface Link {
  readonly target: string;
  readonly line: number;
}

export interface Page {
  /** From the repository's root. */
  readonly path: string;
  readonly text: string;
  /** The lines, with those of fenced blocks empty, so that line numbers stay. */
  readonly prose: readonly string[];
  /** Anchors, as GitHub derives them from headings. */
  readonly anchors: ReadonlySet<string>;
  /** Targets of links and pictures. */
  readonly links: readonly Link[];
  readonly blocks: readonly Block[];
  /** Texts between backticks, outside blocks. */
  readonly spans: readonly Link[];
}

/** The newcomer’s pages: they are read, and their commands run, before all others. */
const FIRST = ['README.md', 'docs/getting-started.md'];

/** All pages: the newcomer’s, then the others by name. */
export function readPages(root = sourceRoot): Page[] {
  const deploy = readdirSync(root).includes('deploy') ? markdownIn(root, 'deploy') : [];
  const top = readdirSync(root).filter((name) => name.endsWith('.md'));
  const rest = [...top, ...markdownIn(root, 'docs'), ...deploy].filter((path) => !FIRST.includes(path)).sort();
  return [...FIRST, ...rest].map((path) => parsePage(path, readFileSync(join(root, path), 'utf8')));
}

/** The pages of the benches' folders, whose commands are not run. */
export function readBenchPages(root = sourceRoot): Page[] {
  return readdirSync(join(root, 'bench'))
    .map((name) => `bench/${name}/README.md`)
    .filter((path) => existsSync(join(root, path)))
    .map((path) => parsePage(path, readFileSync(join(root, path), 'utf8')));
}

/** The files of `bench/results` that are text. */
export function readResultPages(root = sourceRoot): Page[] {
  return markdownIn(root, 'bench/results').map((path) => parsePage(path, readFileSync(join(root, path), 'utf8')));
}

function markdownIn(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name}`);
}

/** Reads one page's text. */
export function parsePage(path: string, text: string): Page {
  const { prose, blocks } = withoutBlocks(text.split('\n'));
  const spans: Link[] = [];
  const links: Link[] = [];
  for (const [at, line] of prose.entries()) {
    const bare = line.replace(/(`+)(.+?)\1/g, (_, __, span: string) => {
      spans.push({ target: span.trim(), line: at + 1 });
      return '';
    });
    // Of a link whose text is code only the text is removed.
    for (const [, target = ''] of bare.matchAll(/\]\(([^()\s]+)(?:\s+"[^"]*")?\)/g))
      links.push({ target, line: at + 1 });
    const [, defined] = /^\[[^\]^][^\]]*\]:\s+(\S+)/.exec(bare) ?? [];
    if (defined !== undefined) links.push({ target: defined, line: at + 1 });
  }
  return { path, text, prose, anchors: anchorsOf(prose), links, blocks, spans };
}

function withoutBlocks(lines: readonly string[]): { prose: string[]; blocks: Block[] } {
  const prose: string[] = [];
  const blocks: Block[] = [];
  let open:
    { readonly fence: string; readonly indent: number; readonly info: string; readonly line: number } | undefined;
  let inside: string[] = [];
  for (const [at, line] of lines.entries()) {
    const [, indent = '', fence = '', info = ''] = /^(\s*)(`{3,}|~{3,})(.*)$/.exec(line) ?? [];
    if (open === undefined && fence !== '') {
      open = { fence, indent: indent.length, info: info.trim(), line: at + 1 };
      inside = [];
    } else if (open !== undefined && fence.startsWith(open.fence) && info.trim() === '') {
      blocks.push({ info: open.info, text: inside.join('\n'), line: open.line });
      open = undefined;
    } else if (open !== undefined) inside.push(line.slice(Math.min(open.indent, line.search(/\S|$/))));
    else {
      prose.push(line);
      continue;
    }
    prose.push('');
  }
  return { prose, blocks };
}

function anchorsOf(prose: readonly string[]): Set<string> {
  const anchors = new Set<string>();
  for (const line of prose) {
    const [, heading] = /^#{1,6}\s+(.*?)\s*#*$/.exec(line) ?? [];
    if (heading === undefined) continue;
    const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const slug = plain.replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-');
    let anchor = slug;
    for (let again = 1; anchors.has(anchor); again += 1) anchor = `${slug}-${again}`;
    anchors.add(anchor);
  }
  return anchors;
}
