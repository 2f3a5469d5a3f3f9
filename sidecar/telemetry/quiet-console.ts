import { Console } from 'node:console';
import { Writable } from 'node:stream';
import type { Log } from './logger.js';

/**
 * Replaces the process's `console` by one that prints nothing. stdout is the log, one JSON object a line, and what a
 * library prints may quote anything: NATS' client prints bytes of its server, which may contain the credentials that it
 * was sent. Nothing of ours uses `console`. Each text leaves one constant line, for those who look for what is missing.
 */
export function quietConsole(log: Pick<Log, 'debug'>): void {
  const nowhere = new Writable({
    write: (_text, _encoding, done) => {
      log.debug('a library printed, which is not shown');
      done();
    },
  });
  globalThis.console = new Console(nowhere);
}
