/** TLS of the public listener: the operator's files, checked, watched and handed to the server when they are renewed. */
import type { Config } from '../config/config.js';
import type { Server } from '../http/server.js';
import type { TlsFiles } from '../http/tls-apps.js';
import { CertificateFiles, type Certificate } from '../lib/certificate-files.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';

export interface Tls {
  /** Undefined: plain HTTP. */
  readonly files: TlsFiles | undefined;
  /** Renewed certificates go to this server from now on. Called once. */
  follow(server: Pick<Server, 'renewTls'>): void;
  /** Reads the files now. Problems are logged. */
  reload(): Promise<void>;
  /** Stops watching the files. Idempotent. */
  close(): void;
}

/** Opens the configured files. Rejects with one line if they are no pair that TLS can use; then none is left open. */
export async function openTls({ tls }: Pick<Config, 'tls'>, clock: Clock, log: Log): Promise<Tls> {
  const { keyFile, certFile } = tls;
  if (keyFile === undefined || certFile === undefined) return PLAIN;
  const files = { keyFile, certFile };
  let server: Pick<Server, 'renewTls'> | undefined;
  const unusable = (reason: string): void =>
    log.warn('certificate cannot be used, the previous one stays in force', { file: certFile, reason });
  const opened = await CertificateFiles.open(files, clock, {
    changed: (certificate) => {
      try {
        server?.renewTls(files);
        report(certificate);
        return true;
      } catch {
        // The files changed between the check and uWS's own reading; the next change is read again.
        unusable('the HTTP library cannot use the pair');
        return false;
      }
    },
    unusable,
  });
  const report = ({ fingerprint, notAfter }: Certificate): void => {
    log.info('certificate in force', {
      file: certFile,
      reason: `SHA-256 ${fingerprint}, until ${notAfter.toISOString()}`,
    });
    if (notAfter.getTime() <= Date.now()) log.warn('certificate is past its end', { file: certFile });
  };
  report(opened.inForce);
  return { files, follow: (given) => (server = given), reload: () => opened.reload(), close: () => opened.close() };
}

const PLAIN: Tls = {
  files: undefined,
  follow: () => undefined,
  reload: () => Promise.resolve(),
  close: () => undefined,
};
