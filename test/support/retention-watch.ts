/** Collects everything that leaves a sidecar other than in a reply, and searches it for secrets and content. */
import { readdir, readFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LeakSearch } from './leak-search.js';
import { FeedReader } from './console-feed.js';
import { childrenOf } from './processes.js';

/** Where texts leave. */
export const PLACES = [
  'stdout',
  'stderr',
  'pages',
  'errors',
  'heads',
  'files',
  'events',
  'commands',
  'processes',
  'otlp',
] as const;
export type Place = (typeof PLACES)[number];

export interface Leak {
  readonly place: Place;
  /** A finding, with the text around it. */
  readonly found: string;
}

/** What the test harness has of a sidecar. */
interface Watched {
  readonly pid: number;
  readonly port: number;
  readonly operatorsPort: number;
  readonly lines: readonly object[];
  readonly printed: string;
}

const PUBLIC_PAGES = ['/healthz', '/readyz', '/v1/openapi.json'];
const OPERATORS_PAGES = ['/metrics', '/admission', '/healthz', '/readyz', '/console'];

export class RetentionWatch {
  readonly #texts = new Map<Place, string[]>();
  /** Texts of replies, which nothing else may contain. */
  readonly #replies: string[] = [];

  /** So many places have something to search. */
  get places(): Place[] {
    return PLACES.filter((place) => this.#texts.get(place)?.some((text) => text.trim() !== ''));
  }

  /** Phrases of three words from the replies so far, too long to be chance. */
  get phrases(): string[] {
    const all = this.#replies.flatMap((text) => text.match(/[A-Za-z]+ [A-Za-z]+ [A-Za-z]+/g) ?? []);
    return [...new Set(all)].filter((phrase) => phrase.length >= 16);
  }

  saw(place: Place, ...texts: readonly string[]): void {
    this.#texts.set(place, [...(this.#texts.get(place) ?? []), ...texts]);
  }

  /** An error’s answer, which may repeat nothing. Returns its text. */
  async refused(response: Response): Promise<{ status: number; code: string }> {
    const text = await response.text();
    this.saw('errors', JSON.stringify([...response.headers]), text);
    return { status: response.status, code: (JSON.parse(text) as { error: { code: string } }).error.code };
  }

  /** A reply: its body is the caller’s own, its head is not. Returns the body. */
  async replied(response: Response): Promise<string> {
    this.saw('heads', JSON.stringify([...response.headers]));
    const text = await response.text();
    this.streamed(text);
    return text;
  }

  /** The body of a reply, also of one that ended early: its error frame is an error’s answer. */
  streamed(body: string): void {
    const end = body.search(/^data: \{(?:"error"|"type":"error")/m);
    if (end >= 0) this.saw('errors', body.slice(end));
    const texts = body.matchAll(/"(?:content|delta|text)":("(?:[^"\\]|\\.)*")/g);
    this.#replies.push(Array.from(texts, ([, json]) => JSON.parse(json ?? '') as string).join(''));
  }

  /** What callers and operators can read of it now. */
  async pages({ port, operatorsPort }: Pick<Watched, 'port' | 'operatorsPort'>): Promise<void> {
    const urls = [
      ...PUBLIC_PAGES.map((path) => `http://127.0.0.1:${port}${path}`),
      ...OPERATORS_PAGES.map((path) => `http://127.0.0.1:${operatorsPort}${path}`),
    ];
    this.saw('pages', ...(await Promise.all(urls.map(async (url) => (await fetch(url)).text()))));
    const feed = await FeedReader.open(operatorsPort);
    this.saw('pages', JSON.stringify(await feed.until(() => true)));
    feed.close();
  }

  /** What the machine’s users can see of a process and of those it started: arguments and environment. */
  processes(pid: number): void {
    for (const file of ['cmdline', 'environ']) this.saw('processes', readFileSync(`/proc/${pid}/${file}`, 'latin1'));
    for (const child of childrenOf(pid)) {
      try {
        this.processes(child.pid);
      } catch (error) {
        // It ended meanwhile: no user can see anything of it.
        if (!['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      }
    }
  }

  /** The whole log of a sidecar so far. */
  output({ lines, printed }: Pick<Watched, 'lines' | 'printed'>): void {
    this.saw('stdout', ...lines.map((line) => JSON.stringify(line)));
    this.saw('stderr', printed);
  }

  /** A command’s output. */
  command({ stdout, stderr }: { readonly stdout: string; readonly stderr: string }): void {
    this.saw('commands', stdout, stderr);
  }

  /** Names and bytes of all files in a folder and below. Returns the names. */
  async files(dir: string): Promise<string[]> {
    const entries = await readdir(dir, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    this.saw('files', ...entries.map(({ name }) => name));
    this.saw('files', ...(await Promise.all(files.map((file) => readFile(file, 'latin1')))));
    return files;
  }

  /** One leak a place, the first. */
  leaks(search: LeakSearch): Leak[] {
    return this.places.flatMap((place) => {
      const found = search.find((this.#texts.get(place) ?? []).join('\n'));
      return found === undefined ? [] : [{ place, found }];
    });
  }
}
