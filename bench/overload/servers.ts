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
import { LlamaServer, NO_PROMPT_CACHE } from '../support/peers.js';
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

/** The sidecar with its default settings and a key for each account. */
export async function sidecar({ file, seats, context, threads }: Sizes, accounts: readonly string[]): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), 'ra-overload-'));
  const keys = accounts.map((account) => ({ account, ...makeKey({ id: account, account }) }));
  const keyFile = join(folder, 'keys.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: keys.map(({ stored }) => stored) }));
  const teardowns = new Teardowns();
  const model = { id: CHAT, kind: 'chat', file, seats, contextPerSeat: context, threads, gpu: false };
  const running = await Sidecar.start(teardowns, {
    config: {
      models: [{ ...model, prefixReuse: 'off', speculation: 'off' }],
      development: { validateAnswers: false },
      keys: { file: keyFile },
    },
  });
  return {
    name: 'ra-sidecar',
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
): Promise<Server> {
  const keys = Object.fromEntries(accounts.map((account) => [account, `key-of-${account}`]));
  const more = ['-ngl', '0', ...NO_PROMPT_CACHE];
  const server = await LlamaServer.start(file, { threads, slots: seats, contextPerSlot: context, more });
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

/** nginx in front of a llama-server, which the caller closes. Further connections than these are refused. */
export async function behindNginx(server: Server, connections: Connections): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), 'ra-overload-nginx-'));
  const port = await freePort();
  const file = join(folder, 'nginx.conf');
  await writeFile(file, nginxConfig(folder, port, server.target.port, connections));
  const child = spawn(NGINX, ['-c', file, '-e', join(folder, 'error.log'), '-p', folder], { stdio: 'ignore' });
  const until = performance.now() + START_MS;
  while (!(await answers(port))) {
    if (hasEnded(child) || performance.now() > until) throw new Error('nginx did not start');
    await new Promise((again) => setTimeout(again, 20));
  }
  return {
    name: 'llama-server behind nginx limit_conn',
    target: { ...server.target, port },
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
function nginxConfig(folder: string, port: number, upstream: number, { all, perKey }: Connections): string {
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
    server 127.0.0.1:${upstream};
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    server_name all;
    location / {
      limit_conn all ${all};
      limit_conn key ${perKey};
      limit_conn_status 429;
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
