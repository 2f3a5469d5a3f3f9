import { _cfg, LIBUS_LISTEN_EXCLUSIVE_PORT } from 'uWebSockets.js';

/** What uWebSockets.js 20.51 has and its types lack. */
declare module 'uWebSockets.js' {
  const LIBUS_LISTEN_EXCLUSIVE_PORT: number;
  /** `silent` keeps uWS from writing its name into every response. Holds for the process. */
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

_cfg('silent');

/** Without it a second process could bind the same port and quietly take half of the connections. */
export const EXCLUSIVE_PORT = LIBUS_LISTEN_EXCLUSIVE_PORT;

export { App, us_listen_socket_close, us_socket_local_port } from 'uWebSockets.js';
export type { HttpRequest, HttpResponse, us_listen_socket } from 'uWebSockets.js';
