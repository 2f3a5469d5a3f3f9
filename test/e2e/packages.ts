/**
 * What `make e2e` needs besides npm’s packages, all of it in Debian. As root, missing packages are installed; otherwise
 * the run names them and ends before its first test, with exit code 1.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { env, getuid, stderr, stdout } from 'node:process';
import { lavapipe } from './lavapipe.js';
import { hasProgram } from './programs.js';

/** A program that an end-to-end test starts, or a driver that it uses, and the Debian package that contains it. */
interface Need {
  readonly program: string;
  /** How it is found, if it is not a program in a PATH. */
  readonly there?: () => boolean;
  readonly package: string;
  /** The tests that need it, for the message that it is missing. */
  readonly for: string;
}

const NEEDS: readonly Need[] = [
  { program: 'cmake', package: 'cmake', for: 'llama-server and the native addon' },
  { program: 'ninja', package: 'ninja-build', for: 'llama-server and the native addon' },
  { program: 'g++', package: 'g++', for: 'llama-server and the native addon' },
  { program: 'chromium', package: 'chromium', for: 'calls from a web page of another origin, and the console' },
  { program: 'promtool', package: 'prometheus', for: 'the alert rules and the metrics page' },
  { program: 'haproxy', package: 'haproxy', for: 'deploy/haproxy and rolling restarts' },
  { program: 'nginx', package: 'nginx-light', for: 'deploy/nginx' },
  { program: 'varnishd', package: 'varnish', for: 'streams through a cache' },
  { program: 'nats-server', package: 'nats-server', for: 'usage delivery to JetStream' },
  {
    program: 'libatomic.so.1',
    there: () => existsSync('/usr/lib/x86_64-linux-gnu/libatomic.so.1'),
    package: 'libatomic1',
    for: 'Node 26',
  },
  {
    program: 'postgres',
    there: () => existsSync('/usr/lib/postgresql/15/bin/postgres') || existsSync('/usr/lib/postgresql/17/bin/postgres'),
    package: 'postgresql',
    for: 'the store',
  },
  { program: 'pgbouncer', package: 'pgbouncer', for: 'the store' },
  { program: 'openssl', package: 'openssl', for: 'certificates of the proxies and of NATS, and TLS' },
  { program: 'debootstrap', package: 'debootstrap', for: 'Node 24 and 26 and the image, on Debian 13' },
  { program: 'buildah', package: 'buildah', for: 'the image' },
  { program: 'systemd-analyze', package: 'systemd', for: 'the unit in deploy/systemd' },
  { program: 'socat', package: 'socat', for: 'messages to systemd' },
  {
    program: 'aarch64-linux-gnu-g++',
    package: 'g++-aarch64-linux-gnu',
    for: 'compiling the vision process’s system call filter for arm64',
  },
  { program: 'qemu-aarch64-static', package: 'qemu-user-static', for: 'the engine on arm64' },
  {
    program: 'lavapipe',
    there: () => lavapipe() !== undefined,
    package: 'mesa-vulkan-drivers',
    for: 'an engine on Vulkan',
  },
];

/**
 * dpkg asks this script whether a package may start its service; exit code 101 denies it. Tests start what they need.
 */
const SERVICE_POLICY = '/usr/sbin/policy-rc.d';

/** apt-get’s own timeout for a slow mirror, seconds. */
const APT_TIMEOUT_S = 60;

function missing(): Need[] {
  return NEEDS.filter(({ program, there }) => !(there?.() ?? hasProgram(program)));
}

/**
 * Installs the packages. apt-get prints to this process’s output; failures show in what is still missing afterwards.
 */
function install(packages: readonly string[]): void {
  const barred = existsSync(SERVICE_POLICY);
  if (!barred) {
    writeFileSync(SERVICE_POLICY, '#!/bin/sh\nexit 101\n');
    chmodSync(SERVICE_POLICY, 0o755);
  }
  try {
    apt('update');
    apt('install', '--yes', '--no-install-recommends', ...packages);
  } finally {
    if (!barred) rmSync(SERVICE_POLICY);
  }
}

function apt(...args: readonly string[]): void {
  spawnSync('apt-get', ['-qq', '-o', `Acquire::http::Timeout=${APT_TIMEOUT_S}`, ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
  });
}

const wanted = [...new Set(missing().map((need) => need.package))];
if (wanted.length > 0 && getuid?.() === 0) {
  stdout.write(`make e2e installs Debian's ${wanted.join(', ')}\n`);
  install(wanted);
}
const lacking = missing();
for (const need of lacking) stderr.write(`make e2e lacks ${need.program} (${need.package}), for ${need.for}\n`);
if (lacking.length > 0) {
  const packages = [...new Set(lacking.map((need) => need.package))].join(' ');
  stderr.write(`Install it, or run make e2e as root:\n  sudo apt-get install --no-install-recommends ${packages}\n`);
  process.exitCode = 1;
}
