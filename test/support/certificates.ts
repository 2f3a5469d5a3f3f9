/** Two self-signed certificates for `localhost` and 127.0.0.1, valid for a hundred years, with keys that protect nothing. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { sourceRoot } from './source-root.js';

export interface TestPair {
  readonly keyFile: string;
  readonly certFile: string;
  readonly key: string;
  readonly cert: string;
}

/** `a` or `b`, whose common names are `a.test` and `b.test`. */
export function testPair(name: 'a' | 'b'): TestPair {
  const keyFile = join(sourceRoot, `test/support/certificates/${name}.key.pem`);
  const certFile = join(sourceRoot, `test/support/certificates/${name}.cert.pem`);
  return { keyFile, certFile, key: readFileSync(keyFile, 'utf8'), cert: readFileSync(certFile, 'utf8') };
}

/** The key of `a`, encrypted. */
export const LOCKED_KEY = join(sourceRoot, 'test/support/certificates/locked.key.pem');

/** A connection over TLS once it is secure; it trusts both certificates. Rejects if the handshake fails. */
export function connectTls(port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const ca = [testPair('a').cert, testPair('b').cert];
    const socket = connect({ host: '127.0.0.1', port, ca, servername: 'localhost', ...options }, () => resolve(socket));
    socket.once('error', reject);
  });
}

/** The common name of the certificate that the server presented. */
export function presented(socket: TLSSocket): string {
  const { CN } = socket.getPeerCertificate().subject;
  return String(CN);
}
