/** Debian’s HAProxy and nginx with the files of deploy/, in which only paths and names are replaced. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';
import { RawConnection } from '../support/raw-http.js';
import { shortDir } from '../support/short-dir.js';
import { sourceRoot } from '../support/source-root.js';
import type { Pool } from './pool.js';

interface Owner {
  teardown(fn: () => void | Promise<void>): void;
}

/** Addresses of a running proxy. */
export interface Proxy {
  readonly name: 'HAProxy' | 'nginx';
  /** Plain HTTP, for callers on this machine. */
  readonly port: number;
  readonly tlsPort: number;
}

/** Text of a configuration, and its replacement. */
export type Swaps = Readonly<Record<string, string>>;

/** HAProxy in front of a pool’s two sidecars. `swaps`: further replacements of this test. */
export async function startHaproxy(t: Owner, pool: Pool, swaps: Swaps = {}): Promise<Proxy> {
  const dir = shortDir(t);
  const [port, tlsPort] = [await freePort(), await freePort()];
  const text = swapped('deploy/haproxy/haproxy.cfg', {
    'log /dev/log local0': '',
    'user haproxy': '',
    'group ra-sidecar': '',
    '/run/haproxy/admin.sock': join(dir, 'admin.sock'),
    'bind :443': `bind 127.0.0.1:${tlsPort}`,
    'bind 127.0.0.1:8000': `bind 127.0.0.1:${port}`,
    '/etc/haproxy/certs/': certificate(dir).folder,
    '/run/ra-sidecar@a/http.sock': pool.socket('a'),
    '/run/ra-sidecar@b/http.sock': pool.socket('b'),
    ...swaps,
  });
  const file = join(dir, 'haproxy.cfg');
  writeFileSync(file, text);
  const child = spawn('/usr/sbin/haproxy', ['-db', '-f', file], { stdio: ['ignore', 'ignore', 'inherit'] });
  await up(t, child, port);
  return { name: 'HAProxy', port, tlsPort };
}

/** The same with nginx, whose workers run as the user who started it. */
export async function startNginx(t: Owner, pool: Pool, swaps: Swaps = {}): Promise<Proxy> {
  const dir = shortDir(t);
  // A worker drops root’s rights and must still reach these files.
  chmodSync(dir, 0o755);
  const [port, tlsPort] = [await freePort(), await freePort()];
  const { certificate: cert, key } = certificate(dir);
  const site = swapped('deploy/nginx/ra-sidecar.conf', {
    'listen 443 ssl http2': `listen 127.0.0.1:${tlsPort} ssl http2`,
    'listen 127.0.0.1:8000': `listen 127.0.0.1:${port}`,
    '/etc/nginx/certs/ra-sidecar.pem': cert,
    '/etc/nginx/certs/ra-sidecar.key': key,
    '/run/ra-sidecar@a/http.sock': pool.socket('a'),
    '/run/ra-sidecar@b/http.sock': pool.socket('b'),
    '/run/nginx-bodies': join(dir, 'bodies'),
    ...swaps,
  });
  writeFileSync(join(dir, 'ra-sidecar.conf'), site);
  const file = join(dir, 'nginx.conf');
  // What Debian’s own nginx.conf does with a file in conf.d.
  writeFileSync(
    file,
    `daemon off;
worker_processes 1;
pid ${dir}/nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  ${['proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${dir}/${kind};`).join('\n  ')}
  include ${dir}/ra-sidecar.conf;
}
`,
  );
  const child = spawn('/usr/sbin/nginx', ['-c', file, '-p', dir, '-e', join(dir, 'error.log')], { stdio: 'ignore' });
  await up(t, child, port);
  return { name: 'nginx', port, tlsPort };
}

/** The file of deploy/ with `swaps` applied. Throws if one does not match: then the file and its test differ. */
function swapped(path: string, swaps: Swaps): string {
  let text = readFileSync(join(sourceRoot, path), 'utf8');
  for (const [from, to] of Object.entries(swaps)) {
    if (!text.includes(from)) throw new Error(`${path} holds no "${from}"`);
    text = text.replaceAll(from, to);
  }
  return text;
}

/** Waits until a proxy listens, and ends it with the test. */
export async function up(t: Owner, child: ChildProcess, port: number): Promise<void> {
  const gone = once(child, 'exit');
  t.teardown(async () => {
    child.kill('SIGTERM');
    await gone;
  });
  await eventually('the proxy listens', async () => {
    if (child.exitCode !== null) throw new Error(`the proxy ended with ${child.exitCode}`);
    return await RawConnection.open(port).then(
      (connection) => {
        connection.close();
        return true;
      },
      () => false,
    );
  });
}

/** A self-signed certificate, in the files that each proxy needs. */
function certificate(dir: string): { readonly folder: string; readonly certificate: string; readonly key: string } {
  const [cert, key, folder] = [join(dir, 'cert.pem'), join(dir, 'cert.key'), join(dir, 'certs')];
  const how = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  execFileSync('openssl', [...how, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  mkdirSync(folder);
  writeFileSync(join(folder, 'all.pem'), readFileSync(cert, 'utf8') + readFileSync(key, 'utf8'));
  return { folder, certificate: cert, key };
}
