/** Why an address cannot be listened on, which uWS does not say. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname } from 'node:path';

/** The longest path of a Unix socket, bytes. */
const MOST_PATH_BYTES = 107;

/** All addresses of IPv6, and with them those of IPv4. */
const ANY = '::';

/** All addresses of IPv4. */
const ANY_IPV4 = '0.0.0.0';

/** The code of a kernel without IPv6. */
const WITHOUT_IPV6 = 'EAFNOSUPPORT';

/** The address to use in place of `host` where listening on it failed with `code`: `::` means all addresses, also without IPv6. */
export function hostInstead(host: string, code: string | undefined): string | undefined {
  return host === ANY && code === WITHOUT_IPV6 ? ANY_IPV4 : undefined;
}

/** `host:port` as in a URL. */
export function addressText(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Why the address, or the one that is used in its place, cannot be listened on: the operating system's code, or undefined. */
export async function addressProblem(host: string, port: number): Promise<string | undefined> {
  const code = await bindError(host, port);
  const instead = hostInstead(host, code);
  return instead === undefined ? code : await bindError(instead, port);
}

/** Listens for a moment, since only that shows whether it is possible. The operating system's code, or undefined. */
export function bindError(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code ?? 'failed'));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** What prevents the file of a socket from being created, or undefined if nothing is known to. */
export async function socketProblem(path: string): Promise<string | undefined> {
  if (Buffer.byteLength(path) > MOST_PATH_BYTES) return `the path is longer than ${MOST_PATH_BYTES} bytes`;
  return await access(dirname(path), constants.W_OK | constants.X_OK).then(
    () => undefined,
    (error: unknown) => `its folder cannot be written (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`,
  );
}
