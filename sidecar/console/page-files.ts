/** The console's page: a few files beside the sources, sent unchanged. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Exchange } from '../http/exchange.js';

/** They are beside the sources, not in dist/, since they are not compiled. */
const FOLDER = new URL('../../../sidecar/console/page/', import.meta.url);

/** Each file with the path that it is served at. */
export const PAGE_FILES = {
  '/console': 'index.html',
  '/console/console.css': 'console.css',
  '/console/parts.css': 'parts.css',
  '/console/seats.css': 'seats.css',
  '/console/keys.css': 'keys.css',
  '/console/preferences.css': 'preferences.css',
  '/console/icon.svg': 'icon.svg',
  '/console/main.js': 'main.js',
  '/console/feed.js': 'feed.js',
  '/console/history.js': 'history.js',
  '/console/replicas.js': 'replicas.js',
  '/console/seats.js': 'seats.js',
  '/console/sums.js': 'sums.js',
  '/console/histogram.js': 'histogram.js',
  '/console/model.js': 'model.js',
  '/console/upkeep.js': 'upkeep.js',
  '/console/keys.js': 'keys.js',
  '/console/keys-account.js': 'keys-account.js',
  '/console/keys-form.js': 'keys-form.js',
  '/console/keys-text.js': 'keys-text.js',
  '/console/counts.js': 'counts.js',
  '/console/dom.js': 'dom.js',
  '/console/text.js': 'text.js',
} as const;

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};

/**
 * The browser's restrictions for the page: only its own files, no inline script or style, no request to another host,
 * no text parsed as markup, no frame around it.
 */
const GUARDS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  // Cached, but revalidated at each visit, so that a new version is used at once.
  'Cache-Control': 'no-cache',
} as const;

interface Loaded {
  readonly body: Uint8Array;
  readonly fields: Readonly<Record<string, string>>;
}

/**
 * The page's files, read at the first request and kept: they change only with the version, that is, in a new process.
 */
export class PageFiles {
  readonly #read: (file: URL) => Promise<Uint8Array>;
  readonly #loaded = new Map<string, Promise<Loaded>>();

  /** `read`: tests pass their own. */
  constructor(read: (file: URL) => Promise<Uint8Array> = readFile) {
    this.#read = read;
  }

  /**
   * Answers with a file, or with 304 if the browser has it. Rejects if the file cannot be read: it does not exist, which
   * means a broken installation, or the process has no more descriptors; the next request reads it again.
   */
  async send(exchange: Exchange, name: string): Promise<void> {
    const { body, fields } = await this.#load(name);
    const known = exchange.head.header('if-none-match')?.split(',') ?? [];
    if (known.some((tag) => tag.trim().replace(/^W\//, '') === fields['ETag'])) {
      exchange.reply({ status: 304, headers: fields });
    } else {
      exchange.reply({ status: 200, headers: fields, body });
    }
  }

  #load(name: string): Promise<Loaded> {
    let loaded = this.#loaded.get(name);
    if (!loaded) {
      this.#loaded.set(name, (loaded = this.#read(new URL(name, FOLDER)).then((body) => loadedOf(name, body))));
      loaded.catch(() => this.#loaded.delete(name));
    }
    return loaded;
  }
}

function loadedOf(name: string, body: Uint8Array): Loaded {
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  return { body, fields: { 'Content-Type': type, ETag: tag, ...GUARDS } };
}
