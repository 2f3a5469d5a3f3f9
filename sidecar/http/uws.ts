/**
 * Loads uWebSockets.js, which comes as native binaries, one for each version of Node. Two versions are installed: 20.69 has
 * binaries for Node 22, 24 and 26 and needs glibc 2.38; 20.51 has them for Node 18 to 23 and needs glibc 2.27. What both do
 * is what this folder relies on: `tryEnd` without bytes, for example, ends the response in 20.69 and does not in 20.51.
 */
import type * as Uws from 'uWebSockets.js';

/** Functions of uWebSockets.js that its types lack. */
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

/** Loads one version of the library. */
export type Load = () => Promise<typeof Uws>;

/**
 * Loads the first version that this process can load; `loads` has the newest first.
 *
 * @throws {Error} There is no binary that this process can load. The message names Node, glibc and what to install: it is the one
 *   line with which a start ends.
 */
export async function loadUws(loads: readonly Load[]): Promise<typeof Uws> {
  for (const load of loads) {
    try {
      return await load();
    } catch {
      // The library's own message has several lines and names versions of Node that this project does not run on.
    }
  }
  throw new Error(withoutBinary(thisHost()));
}

/** What decides which binary of the library a process needs. */
export interface Host {
  /** Of Node, such as `24.21.0`. */
  readonly node: string;
  readonly platform: string;
  readonly arch: string;
  /** The version of the C library, such as `2.36`; absent on musl. */
  readonly glibc?: string | undefined;
}

/** Those for which only 20.69 has binaries. */
const RECENT_NODES: ReadonlySet<number> = new Set([24, 26]);
/** The second number of the glibc that 20.69 needs. */
const RECENT_GLIBC = 38;

/** The line with which a start ends where no binary loads: the host, and what to install. */
export function withoutBinary({ node, platform, arch, glibc }: Host): string {
  const [major = 0] = node.split('.').map(Number);
  const [, minor = 0] = glibc?.split('.').map(Number) ?? [];
  const here = `Node ${node} on ${platform} ${arch}, ${glibc === undefined ? 'without glibc' : `glibc ${glibc}`}`;
  const again = 'then install the sidecar again with that Node (npm ci)';
  if (!RECENT_NODES.has(major))
    return `uWebSockets.js has no binary for ${here}: install Node 24, or Node 22 on glibc below 2.38, ${again}`;
  if (minor < RECENT_GLIBC)
    return `uWebSockets.js has no binary for ${here}: it needs glibc 2.38 (Debian 13, Ubuntu 24.04); on an older one use Node 22, ${again}`;
  return `uWebSockets.js is installed without its binary for ${here}: install the npm package @uwsjs/${platform}-${arch}-${major} (npm ci with this Node), if the registry has it`;
}

function thisHost(): Host {
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return {
    node: process.versions.node,
    platform: process.platform,
    arch: process.arch,
    glibc: header?.glibcVersionRuntime,
  };
}

const library = await loadUws([
  () => import('uWebSockets.js'),
  // It lacks a few functions of the newer one, of which this folder calls none.
  () => import('uWebSockets.js-20.51') as Promise<unknown> as Promise<typeof Uws>,
]);
library._cfg('silent');

/** Without it a second process could bind the same port and quietly take half of the connections. */
export const EXCLUSIVE_PORT = library.LIBUS_LISTEN_EXCLUSIVE_PORT;

export const { App, SSLApp, us_listen_socket_close, us_socket_local_port } = library;
export type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
