import { isLoopback } from './loopback.js';
import type { Config } from './types.js';

/** Longest path in Linux's `sun_path` without its final zero, in bytes. */
const SOCKET_PATH_BYTES = 107;

/** Rules between the settings of listeners and access; see `contradictions` in checks.ts. */
export function accessContradictions({ listen, access, gateway, authorizer }: Config): string[] {
  const broken: string[] = [];
  if (!listen.tcp && listen.socket === undefined) broken.push('listen.tcp must be true unless listen.socket is set');
  for (const [path, socket] of [
    ['listen.socket', listen.socket],
    ['authorizer.socket', authorizer.socket],
  ] as const) {
    if (socket !== undefined && Buffer.byteLength(socket) > SOCKET_PATH_BYTES)
      broken.push(`${path} must have at most ${SOCKET_PATH_BYTES} bytes as an absolute path`);
  }
  if (access.mode === 'gateway' && gateway.secretFile === undefined)
    broken.push('gateway.secretFile must be set where access.mode is gateway');
  if (access.mode === 'authorizer' && authorizer.url === undefined)
    broken.push('authorizer.url must be set where access.mode is authorizer');
  const url = authorizer.url === undefined ? undefined : urlProblem(authorizer.url, authorizer.socket !== undefined);
  return url === undefined ? broken : [...broken, url];
}

function urlProblem(url: string, overSocket: boolean): string | undefined {
  if (!URL.canParse(url)) return 'authorizer.url must be a URL';
  const { protocol, hostname } = new URL(url);
  // Keys and their hashes must not cross a network unencrypted.
  if (protocol === 'http:' && !overSocket && !isLoopback(hostname.replace(/^\[|\]$/g, '')))
    return 'authorizer.url must be https, unless it names a loopback address or authorizer.socket is set';
  return undefined;
}
