/** The disk of the usage spool is full: a small file system, and a process with a limit on file sizes. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { cases } from '../support/long-form.js';
import { ENDLESS, OpenStream } from '../support/open-stream.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';
import { verify } from '../../sidecar/usage/reader.js';

/** A disk that can be filled and emptied while a sidecar runs. */
interface Medium {
  readonly dir: string;
  fill(sidecar: Sidecar): void;
  empty(sidecar: Sidecar): void;
}

/** Largest file that the sidecar may write: less than a record. */
const LIMIT_BYTES = 64;

/** The kernel refuses any write past LIMIT_BYTES (EFBIG). Needs no privileges. */
function limited(dir: string): Medium {
  const limit = (sidecar: Sidecar, bytes: string): void =>
    void execFileSync('prlimit', ['--pid', String(sidecar.pid), `--fsize=${bytes}:`]);
  return {
    dir,
    fill: (sidecar) => limit(sidecar, String(LIMIT_BYTES)),
    empty: (sidecar) => limit(sidecar, 'unlimited'),
  };
}

/** A file system of 2 MiB (ENOSPC). Undefined where mounting is not allowed. */
function tmpfs(t: Test): Medium | undefined {
  const dir = mkdtempSync(join(tmpdir(), 'ra-full-'));
  t.teardown(() => rmdirSync(dir));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', dir], { stdio: 'ignore' });
  } catch {
    return undefined;
  }
  t.teardown(() => void execFileSync('umount', ['--lazy', dir]));
  const filler = join(dir, 'filler');
  return {
    dir,
    fill: () => {
      // What fits stays when the rest does not.
      t.throws(() => writeFileSync(filler, Buffer.alloc(4 << 20)), { code: 'ENOSPC' });
    },
    empty: () => rmSync(filler),
  };
}

async function code(response: Response): Promise<string> {
  return ((await response.json()) as { error: { code: string } }).error.code;
}

/** More requests than fit into a block. */
const MAX_ANSWERED = 50;

const ONE = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 } as const;

function rehearse(name: string, make: (t: Test) => Medium | undefined): void {
  t.test(`${name}: running requests end, new ones are refused, nothing is lost, and the spool recovers`, async (t) => {
    const medium = make(t) ?? limited(t.testdir());
    const usage = { minFreeBytes: 0, closeWaitMs: 1000, maxBacklogBytes: 1 << 30 };
    const sidecar = await Sidecar.start(t, {
      stub: true,
      config: { ...(await chatOnly(2)), dataDir: medium.dir, usage },
    });
    t.equal((await sidecar.chat(ONE)).status, 200);
    // Longer than the requests below.
    const stream = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 300 });

    medium.fill(sidecar);
    // The last block may have room for some more records.
    let answered = 1;
    let refused = await sidecar.chat(ONE);
    for (; refused.status === 200 && answered < MAX_ANSWERED; refused = await sidecar.chat(ONE)) answered++;
    t.match((await stream.response).body, /data: \[DONE\]/, 'the running stream is complete');
    t.equal(refused.status, 503);
    t.ok(Number(refused.headers.get('retry-after')) > 0);
    t.equal(await code(refused), 'spool_unhealthy');
    t.match(await sidecar.readyz(), { status: 503, body: { status: 'unhealthy', parts: { usage: 'unhealthy' } } });
    t.match(await sidecar.readyz(sidecar.operatorsPort), {
      status: 503,
      body: { reasons: [/^spool_unhealthy: (?:write|late|space)$/] },
    });
    t.equal((await fetch(`http://127.0.0.1:${sidecar.port}/healthz`)).status, 200, 'it lives');
    t.equal(await sidecar.metric('ra_sidecar_spool_healthy'), 0);
    t.ok((await sidecar.metric('ra_sidecar_spool_errors_total')) > 0);

    medium.empty(sidecar);
    await sidecar.logged('usage spool healthy');
    t.equal((await sidecar.readyz()).status, 200);
    t.equal((await sidecar.chat(ONE)).status, 200);
    t.equal(await sidecar.metric('ra_sidecar_spool_unsynced_records'), 0);

    sidecar.child.kill('SIGTERM');
    t.equal((await sidecar.exited()).code, 0);
    const dir = join(medium.dir, 'usage');
    const { records, damage } = await readAll(dir);
    t.strictSame(damage, []);
    t.equal(records.filter(({ kind }) => kind === 'open').length, answered + 2);
    t.strictSame(
      records.filter(({ kind }) => kind === 'close').map(({ outcome }) => outcome),
      Array.from({ length: answered + 2 }, () => 'done'),
    );
    t.strictSame((await verify(dir, false)).findings, []);
  });
}

const media: readonly [string, (t: Test) => Medium | undefined][] = [
  ['a file system that is full', tmpfs],
  ['a process with a limit on file sizes', (t) => limited(t.testdir())],
];
for (const [name, make] of cases(media, (_, index) => index === 0)) rehearse(name, make);
