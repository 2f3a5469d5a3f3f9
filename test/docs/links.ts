/** Finds links and paths of pages that do not exist. */
import { existsSync } from 'node:fs';
import { join, posix } from 'node:path';
import type { Page } from './pages.js';

/** Top folders of the repository: a code span that begins with one of them is a path. */
const PATH = /^(?:sidecar|engine|bench|test|docs|deploy)\/[\w./-]*$/;

/** Created by a build, a run or a bench; not in a fresh checkout. */
const MADE = /^bench\/\.cache\//;

/**
 * One line for each link whose file or anchor does not exist, and for each path between backticks that does not exist.
 * Network addresses are parsed, never fetched.
 */
export function brokenLinks(pages: readonly Page[], root: string): string[] {
  const byPath = new Map(pages.map((page) => [page.path, page]));
  const broken: string[] = [];
  for (const page of pages) {
    for (const { target, line } of page.links) {
      const problem = problemOf(page, target, byPath, root);
      if (problem !== undefined) broken.push(`${page.path}:${line}: ${target}: ${problem}`);
    }
    for (const { target, line } of page.spans) {
      if (!PATH.test(target) || MADE.test(target) || existsSync(join(root, target))) continue;
      broken.push(`${page.path}:${line}: ${target}: no such path`);
    }
  }
  return broken;
}

function problemOf(page: Page, target: string, byPath: ReadonlyMap<string, Page>, root: string): string | undefined {
  if (/^[a-z]+:/.test(target)) return URL.canParse(target) ? undefined : 'no address';
  const [file = '', anchor] = target.split('#');
  const path = file === '' ? page.path : posix.join(posix.dirname(page.path), file);
  if (path.startsWith('..')) return 'outside of the repository';
  if (file !== '' && !existsSync(join(root, path))) return 'no such file';
  if (anchor === undefined) return undefined;
  return byPath.get(path)?.anchors.has(anchor) === true ? undefined : 'no such heading';
}
