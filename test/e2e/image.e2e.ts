/**
 * deploy/docker/Dockerfile built by buildah, without Docker and without a registry: its base image is a Debian 13 root
 * made by debootstrap, with npm’s Node 24. Then the image’s command runs with the image’s user and environment on a
 * read-only root: it creates a key, answers one chat and the health check, and ends on SIGTERM. The image for a GPU runs
 * without one and without CUDA’s own libraries, which no registry that tests can reach has: its engine falls back to the CPU.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';
import { sourceRoot } from '../support/source-root.js';
import { baseFolder } from './debian-root.js';

const NODE = '24.21.0';
const BASE = 'localhost/node24';
/** Stands for NVIDIA’s image, of which the build copies one folder. */
const CUDA_BASE = 'localhost/cuda';
/** In it, for CUDA’s libraries. */
const CUDA_LIBRARIES = 'usr/local/cuda-13.0/targets/x86_64-linux/lib';

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

t.before(() => {
  baseImage(BASE, baseFolder(NODE));
  const cuda = join(dir, 'cuda');
  mkdirSync(join(cuda, CUDA_LIBRARIES), { recursive: true });
  writeFileSync(join(cuda, CUDA_LIBRARIES, 'README'), 'for the libraries of CUDA\n');
  baseImage(CUDA_BASE, cuda);
});

t.test('the image for a CPU', async (t) => {
  const image = built('cpu');
  const mib = sizeOf(image);
  t.ok(mib < 200, `/app has ${mib} MiB`);
  await serves(t, image);
});

t.test('the image for a GPU, on a host without one', async (t) => {
  const image = built('cuda');
  for (const name of ['linux-x64-cuda', 'linux-x64-cuda-ext']) {
    t.ok(existsSync(join(image.root, 'app/node_modules/@node-llama-cpp', name)), `it has ${name}`);
  }
  t.ok(existsSync(join(image.root, 'usr/local/cuda/lib64/README')), 'it has what NVIDIA’s image has for it');
  t.ok(image.config.Env.includes('NVIDIA_DRIVER_CAPABILITIES=compute,utility'), 'it asks for the driver');
  t.comment(`/app has ${sizeOf(image)} MiB`);
  await serves(t, image);
});

/** An image with a folder’s files alone. */
function baseImage(name: string, folder: string): void {
  const empty = buildah('from', 'scratch');
  buildah('copy', '--quiet', empty, folder, '/');
  buildah('commit', '--quiet', empty, name);
}

/** A built image, and where its files lie. */
interface Image {
  readonly config: Config;
  readonly root: string;
}

/** Builds a target of the Dockerfile. */
function built(target: string): Image {
  const name = `localhost/ra-sidecar:${target}`;
  // The Docker format, since OCI's has no health check. With layers the second target takes the first one's stages as they are.
  const how = ['--isolation', 'chroot', '--format', 'docker', '--layers', '--quiet', '--target', target];
  const bases = ['--build-arg', `NODE_IMAGE=${BASE}`, '--build-arg', `CUDA_IMAGE=${CUDA_BASE}`];
  buildah('bud', ...npmOfHost(), ...how, ...bases, '-f', 'deploy/docker/Dockerfile', '-t', name, '.');
  const inspected = JSON.parse(buildah('inspect', '--type', 'image', name)) as {
    readonly Docker: { readonly config: Config };
  };
  return { config: inspected.Docker.config, root: buildah('mount', buildah('from', '--pull-never', name)) };
}

/** Of the sidecar with its packages, MiB. */
function sizeOf({ root }: Image): number {
  return Number(execFileSync('du', ['-sm', join(root, 'app')], { encoding: 'utf8' }).split('\t')[0]);
}

/** Runs an image as a container runtime would: one key, one chat, the health check, SIGTERM. */
async function serves(t: Test, { config, root }: Image): Promise<void> {
  t.match(config, { User: '10001:10001', WorkingDir: '/app', StopSignal: 'SIGTERM', Cmd: ['serve'] });

  const data = mkdtempSync(join(dir, 'data-'));
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
}
