import { connect, type Socket } from 'node:net';

/**
 * A caller that never reads, of a port of 127.0.0.1 or of a Unix socket. It notices by its writes that its connection
 * ended: then it is destroyed.
 */
export function unreading(at: number | string): Socket {
  const socket = connect(typeof at === 'number' ? { port: at, host: '127.0.0.1', noDelay: true } : { path: at });
  socket.pause();
  socket.on('error', () => undefined);
  return socket;
}
