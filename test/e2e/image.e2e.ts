/**
 * deploy/docker/Dockerfile built by buildah, without Docker and without a registry: its base image is a Debian 13 root
 * made by debootstrap, with npm’s Node 24. Then the image’s command runs with the image’s user and environment on a
 * read-only root: it creates a key, answers one chat and the health check, and ends on SIGTERM.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';
import { sourceRoot } from '../support/source-root.js';
import { baseFolder } from './debian-root.js';

const NODE = '24.21.0';
const BASE = 'localhost/node24';
const IMAGE = 'localhost/ra-sidecar';

const dir = mkdtempSync(join(tmpdir(), 'ra-image-'));
const storage = ['--root', join(dir, 'root'), '--runroot', join(dir, 'run'), '--storage-driver', 'overlay'];
const buildah = (...args: readonly string[]): string =>
  execFileSync('buildah', [...storage, ...args], {
    cwd: sourceRoot,
    encoding: 'utf8',
    stdio: 'pipe',
    maxBuffer: 1 << 26,
  }).trim();
t.teardown(() => {
  buildah('rm', '--all');
  rmSync(dir, { recursive: true, force: true });
});

/** Mounts for npm in the build: this host's cache, and the certificate of a registry that this host was told to trust. */
function npmOfHost(): readonly string[] {
  const cache = execFileSync('npm', ['config', 'get', 'cache'], { encoding: 'utf8' }).trim();
  const trusted = process.env['NODE_EXTRA_CA_CERTS'];
  if (trusted === undefined) return ['-v', `${cache}:/root/.npm`];
  const npmrc = join(dir, 'npmrc');
  writeFileSync(npmrc, 'cafile=/etc/npm-trusted.pem\n');
  return ['-v', `${cache}:/root/.npm`, '-v', `${trusted}:/etc/npm-trusted.pem`, '-v', `${npmrc}:/usr/local/etc/npmrc`];
}

interface Config {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Cmd: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly WorkingDir: string;
  readonly StopSignal: string;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

t.test('the image for a CPU', async (t) => {
  const empty = buildah('from', 'scratch');
  buildah('copy', '--quiet', empty, baseFolder(NODE), '/');
  buildah('commit', '--quiet', empty, BASE);
  // The Docker format, since OCI's has no health check.
  const how = [
    ...npmOfHost(),
    '--isolation',
    'chroot',
    '--format',
    'docker',
    '--target',
    'cpu',
    '--build-arg',
    `NODE_IMAGE=${BASE}`,
  ];
  buildah('bud', ...how, '--quiet', '-f', 'deploy/docker/Dockerfile', '-t', IMAGE, '.');
  const container = buildah('from', '--pull-never', IMAGE);
  const inspected = JSON.parse(buildah('inspect', '--type', 'image', IMAGE)) as {
    readonly Docker: { readonly config: Config };
  };
  const { config } = inspected.Docker;
  t.match(config, { User: '10001:10001', WorkingDir: '/app', StopSignal: 'SIGTERM', Cmd: ['serve'] });

  const root = buildah('mount', container);
  const mib = Number(execFileSync('du', ['-sm', join(root, 'app')], { encoding: 'utf8' }).split('\t')[0]);
  t.ok(mib < 200, `/app has ${mib} MiB`);
  const data = join(dir, 'data');
  mkdirSync(data, { mode: 0o700 });
  chownSync(data, 10001, 10001);
  const [port, operators] = [await freePort(), await freePort()];

  /**
   * Does what a container runtime does: a mount namespace with a read-only root, the image’s user, no new privileges.
   */
  const inside = (...command: readonly string[]): readonly string[] => [
    ...['--mount', '--propagation', 'slave', 'sh', '-ec'],
    `mount --bind "$0" "$0"; mount -t tmpfs tmpfs "$0/tmp"; mount --bind "$1" "$0/data"; mount --bind /dev "$0/dev"
     mount -t proc proc "$0/proc"; mount -o remount,bind,ro "$0"; shift
     exec setpriv --no-new-privs chroot --userspec=${config.User} "$0" sh -c 'cd /app && exec "$@"' sh "$@"`,
    ...[root, data, ...command],
  ];
  const own = [`RA_LISTEN_PORT=${port}`, `RA_OPERATORS_PORT=${operators}`, 'RA_DRAIN_NOTICE_MS=0'];
  const env = Object.fromEntries([...config.Env, ...own].map((pair) => pair.split(/=(.*)/s) as [string, string]));
  const ran = (...command: readonly string[]): string =>
    execFileSync('unshare', inside(...command), { env, encoding: 'utf8', stdio: 'pipe' });

  t.equal(
    ran('sh', '-c', 'id -u; touch /app/x 2>&1 || true').trim(),
    "10001\ntouch: cannot touch '/app/x': Read-only file system",
  );
  const key =
    /ra-[\w-]{20,}/.exec(ran(...config.Entrypoint, 'keys', 'create', '--account', 'acme', '--models', 'all'))?.[0] ??
    '';
  const child = spawn('unshare', inside(...config.Entrypoint, ...config.Cmd), {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let logged = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (logged += text));
  const ready = async (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  const gone = once(child, 'exit').then(() => Promise.reject(new Error('it ended before it was ready')));
  await Promise.race([eventually('it is ready', ready), gone]);
  gone.catch(() => undefined);
  ran(...config.Healthcheck.Test.slice(1));
  const body = { model: 'ra-tiny-chat', max_tokens: 32, messages: [{ role: 'user', content: 'Hello, who are you?' }] };
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  const answer = await response.text();
  t.match(answer, /seedling/);
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  t.strictSame(await ended, [0, null], 'it drained');
  t.match(logged, /"event":"draining"/);
  // For docs/deploy.md.
  t.comment(`it answered ${answer}\nand logged\n${logged}`);
});
