/** Debian’s Chromium without a window, and a small server for the page that it shows. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';
import { text } from 'node:stream/consumers';
import { sourceRoot } from '../support/source-root.js';

/** Long enough for a loaded machine to start Chromium and to generate a few short replies. */
const SHOW_MS = 120_000;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
};

/** Without the background flags Chromium contacts its vendor at every start. */
export const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
];

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

/** One origin. It serves the test’s page and receives the page’s report. Closed when its test ends. */
export class PageServer {
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  #given = '';
  #report: (report: string) => void = () => undefined;

  static async start(t: Owner): Promise<PageServer> {
    const page = new PageServer();
    page.#server.listen(0, '127.0.0.1');
    await once(page.#server, 'listening');
    t.teardown(() => {
      page.#server.closeAllConnections();
      page.#server.close();
    });
    return page;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Opens the page in a new Chromium, with `given` for the page to fetch, and resolves with the page’s report. */
  async show(t: Owner, given: object): Promise<unknown> {
    this.#given = JSON.stringify(given);
    const reported = new Promise<string>((resolve) => (this.#report = resolve));
    const late = new Promise<never>((_, reject) => {
      const timer = setTimeout(() => reject(new Error('the page reported nothing')), SHOW_MS);
      void reported.then(() => clearTimeout(timer));
    });
    await openChromium(t, `${this.origin}/index.html`);
    return JSON.parse(await Promise.race([reported, late])) as unknown;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = normalize(request.url ?? '/');
    if (path === '/report') {
      this.#report(await text(request));
      response.writeHead(204).end();
    } else if (path === '/given') {
      response.writeHead(200, { 'content-type': 'application/json' }).end(this.#given);
    } else {
      const file = fileOf(path);
      if (file === undefined) {
        response.writeHead(404).end();
        return;
      }
      response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
      createReadStream(file)
        .on('error', () => response.destroy())
        .pipe(response);
    }
  }
}

/** `path` is normalized, so it cannot leave the folder. */
function fileOf(path: string): string | undefined {
  if (path === '/index.html') return join(sourceRoot, 'test/e2e/page/index.html');
  if (path === '/page.js') return join(sourceRoot, 'dist/test/e2e/page.js');
  return path.startsWith('/node_modules/openai/') ? join(sourceRoot, path) : undefined;
}

async function openChromium(t: Owner, url: string): Promise<void> {
  const profile = await mkdtemp(join(tmpdir(), 'ra-chromium-'));
  // In its own process group, since it has many processes.
  const child = spawn('chromium', [...FLAGS, `--user-data-dir=${profile}`, url], { stdio: 'ignore', detached: true });
  const gone = once(child, 'exit');
  t.teardown(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
    await gone;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  });
}
