/**
 * The compared servers: the sidecar, llama-server with the same seats, and llama-server behind nginx as commonly
 * configured.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../test/support/free-port.js';
import { makeKey } from '../../test/support/keys.js';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { hasEnded } from '../support/children.js';
import { LlamaServer } from '../support/peers.js';
import type { Target } from './attempt.js';
import { Teardowns } from '../support/teardowns.js';

/** Where Debian’s package installs it. */
const NGINX = '/usr/sbin/nginx';

/** nginx starts in milliseconds; after this time it has failed. */
const START_MS = 10_000;

/** The API’s defaults, sent to llama-server; by default it would use top_k 40 and reuse prompts. */
const SAME = { top_k: 0, top_p: 1, min_p: 0, cache_prompt: false };

export interface Sizes {
  readonly file: string;
  readonly seats: number;
  readonly context: number;
  readonly threads: number;
}

export interface Server {
  readonly name: string;
  readonly target: Target;
  close(): Promise<void>;
}

/**
 * The sidecar, with a key for each account. `maxWaitMs`: what an operator sets for callers of known patience, with a
 * queue that learns nothing; absent: the default settings.
 */
export async function sidecar(
  sizes: Sizes,
  accounts: readonly string[],
  { maxWaitMs }: { readonly maxWaitMs?: number } = {},
): Promise<Server> {
  const { file, seats, context, threads } = sizes;
  const folder = await mkdtemp(join(tmpdir(), 'ra-overload-'));
  const keys = accounts.map((account) => ({ account, ...makeKey({ id: account, account }) }));
  const keyFile = join(folder, 'keys.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
  const teardowns = new Teardowns();
  const running = await Sidecar.start(teardowns, {
    config: {
      models: [
        {
          id: CHAT,
          kind: 'chat',
          file,
          seats,
          contextPerSeat: context,
          threads,
          gpu: false,
          prefixReuse: 'off',
          speculation: 'off',
        },
      ],
      development: { validateAnswers: false, learnedQueue: maxWaitMs === undefined },
      keys: { file: keyFile },
      ...(maxWaitMs !== undefined && { queue: { maxWaitMs } }),
    },
  });
  return {
    name: `ra-sidecar${maxWaitMs === undefined ? '' : `, maxWaitMs ${maxWaitMs}`}`,
    target: { port: running.port, keys: Object.fromEntries(keys.map(({ account, key }) => [account, key])) },
    close: async () => {
      await teardowns.run();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** It requires no key and reads none; a proxy in front can distinguish callers by theirs. */
export async function llamaServer(
  { file, seats, context, threads }: Sizes,
  accounts: readonly string[],
  more: readonly string[] = [],
): Promise<Server> {
  const keys = Object.fromEntries(accounts.map((account) => [account, `key-of-${account}`]));
  const server = await LlamaServer.start(file, {
    threads,
    slots: seats,
    contextPerSlot: context,
    more: ['-ngl', '0', ...more],
  });
  return {
    name: 'llama-server',
    target: { port: server.port, keys, extras: SAME },
    close: () => server.close(),
  };
}

/** Throws with what to do if nginx is not installed. */
export function needNginx(): void {
  if (!existsSync(NGINX)) throw new Error(`${NGINX} is not there: apt-get install nginx-light`);
}

/** nginx in front of servers, in turn; the caller closes them. `connections`: further ones are refused; absent: none is. */
export async function behindNginx(
  servers: readonly [Server, ...Server[]],
  { connections }: { readonly connections?: Connections } = {},
): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), 'ra-overload-nginx-'));
  const port = await freePort();
  const file = join(folder, 'nginx.conf');
  const upstream = servers.map(({ target }) => `server 127.0.0.1:${target.port}`);
  await writeFile(file, nginxConfig(folder, port, upstream, connections));
  const child = spawn(NGINX, ['-c', file, '-e', join(folder, 'error.log'), '-p', folder], { stdio: 'ignore' });
  const until = performance.now() + START_MS;
  while (!(await answers(port))) {
    if (hasEnded(child) || performance.now() > until) throw new Error('nginx did not start');
    await new Promise((again) => setTimeout(again, 20));
  }
  return {
    name:
      servers.length === 1
        ? `llama-server behind nginx${connections === undefined ? ', default' : ' limit_conn'}`
        : `${servers.length} llama-servers behind nginx, in turn`,
    target: { ...servers[0].target, port },
    close: async () => {
      if (!hasEnded(child)) {
        const gone = once(child, 'exit');
        child.kill('SIGTERM');
        await gone;
      }
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** At once: of all callers together, and with one key. */
export interface Connections {
  readonly all: number;
  readonly perKey: number;
}

/**
 * Without buffering of streams, a new connection for each request as the callers do, and 429 for requests over the
 * limits.
 */
function nginxConfig(
  folder: string,
  port: number,
  upstream: readonly string[],
  connections: Connections | undefined,
): string {
  const limits =
    connections === undefined
      ? ''
      : `limit_conn all ${connections.all};
      limit_conn key ${connections.perKey};
      limit_conn_status 429;`;
  return `daemon off;
worker_processes 1;
pid ${folder}/nginx.pid;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_buffer_size 1m;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  limit_conn_zone $server_name zone=all:1m;
  limit_conn_zone $http_authorization zone=key:1m;
  upstream engines {
    ${upstream.map((line) => `${line};`).join('\n    ')}
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    server_name all;
    location / {
      ${limits}
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`;
}

async function answers(port: number): Promise<boolean> {
  return await fetch(`http://127.0.0.1:${port}/health`).then(
    () => true,
    () => false,
  );
}
