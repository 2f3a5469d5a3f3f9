/**
 * Debian's Varnish in front of a sidecar. It cannot read a body that has a trailer: the end of such a stream, and with it `[DONE]`, is lost.
 */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { freePort } from '../support/free-port.js';
import { ENDLESS, frames, SHORT } from '../support/open-stream.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { shortDir } from '../support/short-dir.js';
import { Sidecar } from '../support/sidecar.js';
import { up } from './proxies.js';

/** The port of a Varnish that forwards every request to the sidecar. */
async function startVarnish(t: Test, { port: behind }: Sidecar): Promise<number> {
  const dir = shortDir(t);
  const port = await freePort();
  const file = join(dir, 'sidecar.vcl');
  writeFileSync(
    file,
    `vcl 4.1;
backend sidecar { .host = "127.0.0.1"; .port = "${behind}"; }
sub vcl_recv { return (pass); }
`,
  );
  const options = [
    '-F',
    '-j',
    'none',
    '-n',
    join(dir, 'work'),
    '-f',
    file,
    '-a',
    `127.0.0.1:${port}`,
    '-s',
    'malloc,16m',
  ];
  await up(t, spawn('/usr/sbin/varnishd', options, { stdio: 'ignore' }), port);
  return port;
}

const sidecar = await Sidecar.start(t, { stub: true });
const varnish = await startVarnish(t, sidecar);

/** A stream of a caller who sends these headers. */
async function stream(
  t: Test,
  path: string,
  body: object,
  headers: Readonly<Record<string, string>>,
): Promise<RawResponse> {
  const connection = await RawConnection.open(varnish);
  t.teardown(() => connection.close());
  const fields = { Authorization: `Bearer ${sidecar.key}`, 'Content-Type': 'application/json', ...headers };
  return await connection.request('POST', path, fields, JSON.stringify({ ...body, stream: true })).response();
}

t.test('a stream arrives with its end, whether its caller takes trailers or not', async (t) => {
  for (const headers of [{}, { TE: 'trailers' }]) {
    // A short one, and one whose frames do not fit into one read.
    for (const body of [SHORT, { ...ENDLESS, max_tokens: 500 }]) {
      const response = await stream(t, '/v1/chat/completions', body, headers);
      t.equal(response.status, 200);
      t.equal(frames(response).at(-1), '[DONE]', JSON.stringify(headers));
    }
  }
});
