import { connect, type Socket } from 'node:net';

/** A caller of 127.0.0.1 that never reads. It notices by its writes that its connection ended: then it is destroyed. */
export function unreading(port: number): Socket {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.pause();
  socket.on('error', () => undefined);
  return socket;
}
