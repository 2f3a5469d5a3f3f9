/**
 * The image of deploy/docker/Dockerfile, as {@link ImageStore} builds it. Its command runs with its user and environment on a
 * read-only root: it creates a key, answers one chat and the health check, and ends on SIGTERM. The image for a GPU runs
 * without one and without CUDA’s own libraries, which no registry that tests can reach has: its engine falls back to the CPU.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { VERSION } from '../../sidecar/lib/version.js';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';
import { ImageStore, type ImageConfig, type Target } from './image-store.js';

const store = new ImageStore();
t.teardown(() => store.close());

t.test('the image for a CPU', async (t) => {
  const image = built('cpu');
  const mib = sizeOf(image);
  t.ok(mib < 200, `/app has ${mib} MiB`);
  t.strictSame(readdirSync(join(image.root, 'app/node_modules/@node-llama-cpp')), ['linux-x64']);
  t.ok(existsSync(join(image.root, 'app/engine/native/bin/ra-engine.linux-x64.node')), 'it has the engine’s addon');
  await serves(t, image);
  // As `make dist` keeps it.
  const archive = join(store.dir, 'image.tar');
  store.save(image.name, archive, `ra-sidecar:${VERSION}-cpu`);
  const manifest = JSON.parse(execFileSync('tar', ['xOf', archive, 'manifest.json'], { encoding: 'utf8' })) as unknown;
  t.match(manifest, [{ RepoTags: [new RegExp(`ra-sidecar:${VERSION}-cpu$`)] }]);
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

/** A built image, and where its files lie. */
interface Image {
  readonly name: string;
  readonly config: ImageConfig;
  readonly root: string;
}

function built(target: Target): Image {
  const name = store.build(target);
  return { name, config: store.config(name), root: store.mount(name) };
}

/** Of the sidecar with its packages, MiB. */
function sizeOf({ root }: Image): number {
  return Number(execFileSync('du', ['-sm', join(root, 'app')], { encoding: 'utf8' }).split('\t')[0]);
}

/** Runs an image as a container runtime would: one key, one chat, the health check, SIGTERM. */
async function serves(t: Test, { config, root }: Image): Promise<void> {
  t.match(config, { User: '10001:10001', WorkingDir: '/app', StopSignal: 'SIGTERM', Cmd: ['serve'] });

  const data = mkdtempSync(join(store.dir, 'data-'));
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
  // The embedded models are for development: the image's environment would refuse to serve them.
  const own = [
    'RA_ENVIRONMENT=development',
    `RA_LISTEN_PORT=${port}`,
    `RA_OPERATORS_PORT=${operators}`,
    'RA_DRAIN_NOTICE_MS=0',
  ];
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
