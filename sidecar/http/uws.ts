/**
 * Loads uWebSockets.js, which comes as native binaries, one for each version of Node: 20.51 has them for Node 18 to 23, and needs
 * glibc 2.27. 20.69 has them for Node 22, 24 and 26 and needs glibc 2.38; it cannot replace 20.51 as it is, since there `tryEnd`
 * without bytes ends the response, and `whole-reply.ts` calls it to find out whether the socket took everything.
 */
import type * as Uws from 'uWebSockets.js';

/** Functions of uWebSockets.js 20.51 that its types lack. */
declare module 'uWebSockets.js' {
  const LIBUS_LISTEN_EXCLUSIVE_PORT: number;
  /** `silent` prevents uWS from writing its name into every response. Applies to the process. */
  function _cfg(key: 'silent'): void;
  interface TemplatedApp {
    listen(
      host: RecognizedString,
      port: number,
      options: number,
      cb: (socket: us_listen_socket | false) => void,
    ): TemplatedApp;
    /** Calls back at once. Deletes whatever is at the path first. */
    listen_unix(cb: (socket: us_listen_socket | false) => void, path: RecognizedString): TemplatedApp;
  }
}

/**
 * Loads the library.
 *
 * @throws {Error} There is no binary that this process can load. The message names Node, glibc and what to install: it is the one
 *   line with which a start ends.
 */
export async function loadUws(load: () => Promise<typeof Uws>): Promise<typeof Uws> {
  try {
    return await load();
  } catch {
    // The library's own message has several lines and names versions of Node that this project does not run on.
    throw new Error(
      `uWebSockets.js has no binary for Node ${process.versions.node} on ${process.platform} ${process.arch}, ${glibc()}: ` +
        'install Node 22 (or 20) on glibc 2.35 or newer, then install the sidecar again with that Node (npm ci)',
    );
  }
}

/** The version of the C library that this process runs on. */
function glibc(): string {
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined ? 'without glibc' : `glibc ${header.glibcVersionRuntime}`;
}

const library = await loadUws(() => import('uWebSockets.js'));
library._cfg('silent');

/** Without it a second process could bind the same port and quietly take half of the connections. */
export const EXCLUSIVE_PORT = library.LIBUS_LISTEN_EXCLUSIVE_PORT;

export const { App, us_listen_socket_close, us_socket_local_port } = library;
export type { HttpRequest, HttpResponse, us_listen_socket } from 'uWebSockets.js';
