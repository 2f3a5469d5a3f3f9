import { isLoopback } from './loopback.js';
import type { Config } from './types.js';

/** What Linux's `sun_path` holds besides its closing zero, in bytes. */
const SOCKET_PATH_BYTES = 107;

/** What settings of listeners and of access demand of each other; as `contradiction` in checks.ts. */
export function accessContradiction({ listen, access, gateway, authorizer }: Config): string | undefined {
  if (!listen.tcp && listen.socket === undefined) return 'listen.tcp must be true unless listen.socket is set';
  for (const [path, socket] of [
    ['listen.socket', listen.socket],
    ['authorizer.socket', authorizer.socket],
  ] as const) {
    if (socket !== undefined && Buffer.byteLength(socket) > SOCKET_PATH_BYTES)
      return `${path} must have at most ${SOCKET_PATH_BYTES} bytes from the root on`;
  }
  if (access.mode === 'gateway' && gateway.secretFile === undefined)
    return 'gateway.secretFile must be set where access.mode is gateway';
  if (access.mode === 'authorizer' && authorizer.url === undefined)
    return 'authorizer.url must be set where access.mode is authorizer';
  if (authorizer.url === undefined) return undefined;
  if (!URL.canParse(authorizer.url)) return 'authorizer.url must be a URL';
  const { protocol, hostname } = new URL(authorizer.url);
  // Keys, or what stands for them, must not cross a network in clear.
  if (protocol === 'http:' && authorizer.socket === undefined && !isLoopback(hostname.replace(/^\[|\]$/g, '')))
    return 'authorizer.url must be https, unless it names a loopback address or authorizer.socket is set';
  return undefined;
}
