/** Debian's HAProxy and nginx, run on the very files of deploy/ with nothing but places and names put in. */
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

/** Where a running proxy is reached. */
export interface Proxy {
  readonly name: 'HAProxy' | 'nginx';
  /** Plain HTTP, for callers on this machine. */
  readonly port: number;
  readonly tlsPort: number;
}

/** Text of a configuration, and what takes its place. */
export type Swaps = Readonly<Record<string, string>>;

/** HAProxy in front of a pool's two sidecars. `swaps`: what else is to be another way in this test. */
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

/** nginx, likewise. It runs its workers as the user who started it. */
export async function startNginx(t: Owner, pool: Pool, swaps: Swaps = {}): Promise<Proxy> {
  const dir = shortDir(t);
  // A worker gives up root's rights, and is to reach what is in here all the same.
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
  // What Debian's own nginx.conf does with a file in conf.d.
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

/** The file of deploy/ with `swaps` made. Throws where one finds nothing: the file and its test have parted. */
function swapped(path: string, swaps: Swaps): string {
  let text = readFileSync(join(sourceRoot, path), 'utf8');
  for (const [from, to] of Object.entries(swaps)) {
    if (!text.includes(from)) throw new Error(`${path} holds no "${from}"`);
    text = text.replaceAll(from, to);
  }
  return text;
}

async function up(t: Owner, child: ChildProcess, port: number): Promise<void> {
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

/** A certificate that nobody trusts, in the files that each proxy wants. */
function certificate(dir: string): { readonly folder: string; readonly certificate: string; readonly key: string } {
  const [cert, key, folder] = [join(dir, 'cert.pem'), join(dir, 'cert.key'), join(dir, 'certs')];
  const how = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  execFileSync('openssl', [...how, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  mkdirSync(folder);
  writeFileSync(join(folder, 'all.pem'), readFileSync(cert, 'utf8') + readFileSync(key, 'utf8'));
  return { folder, certificate: cert, key };
}
