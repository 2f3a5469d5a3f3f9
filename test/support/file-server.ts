/** A host of model files on this machine for downloads: ranges, sizes, statuses. */
import { createReadStream, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { basename } from 'node:path';

interface Owner {
  teardown(fn: () => void): void;
}

export class FileServer {
  readonly base: string;
  /** Resolves when half of a file’s bytes have been sent; only if `half` was set. */
  readonly halfway: Promise<void>;
  /** Sends only the first half of each file, and leaves the connection open. */
  half = false;
  #markHalfway: () => void = () => undefined;

  private constructor(base: string) {
    this.base = base;
    this.halfway = new Promise((resolve) => (this.#markHalfway = resolve));
  }

  /** Serves `files` by their names, and any other path with its own number as the status. Closed with the test. */
  static async open(t: Owner, files: readonly string[]): Promise<FileServer> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const host = new FileServer(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on('request', (request, response) => host.#answer(files, request, response));
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    return host;
  }

  #answer(files: readonly string[], { url = '', headers, method }: IncomingMessage, response: ServerResponse): void {
    const file = files.find((path) => `/${basename(path)}` === url);
    if (file === undefined) {
      response.writeHead(Number(/\d{3}/.exec(url)?.[0] ?? 404)).end('no');
      return;
    }
    const { size } = statSync(file);
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(headers.range ?? '') ?? [];
    const start = Number(first ?? 0);
    const end = last ? Math.min(Number(last), size - 1) : size - 1;
    response.writeHead(first === undefined ? 200 : 206, {
      'accept-ranges': 'bytes',
      'content-length': end - start + 1,
      ...(first !== undefined && { 'content-range': `bytes ${start}-${end}/${size}` }),
    });
    // Reading the first bytes is no download.
    const cut = this.half && end - start > 1000;
    if (method === 'HEAD') response.end();
    else if (!cut) createReadStream(file, { start, end }).pipe(response);
    else {
      createReadStream(file, { start, end: start + ((end - start) >> 1) })
        .on('end', () => this.#markHalfway())
        .pipe(response, { end: false });
    }
  }
}
