import type { Config } from '../config/config.js';
import type { Server } from '../http/server.js';
import type { Log } from '../telemetry/logger.js';

/** Opens the public listener: a port, a Unix socket, or both. Resolves with the port, or 0 if there is none. */
export async function listen(server: Server, at: Config['listen'], log: Log): Promise<number> {
  const { host, tcp, socket, socketMode } = at;
  const [port] = await Promise.all([
    tcp
      ? withSettings('listen.host and listen.port', server.listen(host, at.port)).then(({ port: given }) => given)
      : 0,
    socket === undefined
      ? undefined
      : withSettings('listen.socket', server.listenUnix(socket, parseInt(socketMode, 8))),
  ]);
  if (tcp) log.info('listening', { host, port });
  if (socket !== undefined) log.info('listening on a socket', { file: socket });
  return port;
}

/** Adds to the error of an address that cannot be used by which settings it was chosen. */
export function withSettings<T>(names: string, listening: Promise<T>): Promise<T> {
  return listening.catch((error: unknown) => {
    if (!(error instanceof Error)) throw error;
    throw new Error(`${error.message} (set by ${names})`, { cause: error });
  });
}
