/**
 * A host to install on: a kept root with an overlay of its own, so that the root stays as it is. Before its start programs
 * run in it with this machine's network; after it systemd is process 1, in namespaces of its own and without a network. Needs root
 * and a cgroup 2 hierarchy.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { childrenOf, eventually } from '../support/processes.js';

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** Where the kernel's cgroup 2 hierarchy is: beside the older ones, or alone. */
const CGROUPS = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'];

/** Mounts the host's root, and goes there. $0: the host's folder, $1: the root below. */
const ROOT = `mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/files,workdir=$0/work" "$0/root"; cd "$0/root"
mount -t proc proc proc; `;
const WITH_NETWORK = `${ROOT} mount --rbind /dev dev; shift; exec chroot . "$@"`;
/** systemd wants a root that can be moved, folders of its own for what it makes, and the few devices that a container has. */
const WITH_SYSTEMD = `echo $$ > "$2/cgroup.procs"; ${ROOT}
mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs tmpfs tmp; mount -t sysfs sysfs sys; mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do : > dev/$each; mount --bind /dev/$each dev/$each; done
mkdir dev/shm dev/pts; mount -t tmpfs tmpfs dev/shm; mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
pivot_root . mnt
exec unshare --cgroup sh -ec 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; umount -l /mnt
exec env -i container=test PATH=${PATH} /lib/systemd/systemd --system'`;

export interface Ran {
  readonly code: number | null;
  /** stdout and stderr, as a terminal shows them. */
  readonly output: string;
}

export class Host {
  readonly #dir = mkdtempSync(join(tmpdir(), 'ra-host-'));
  /** Where files are put before the start: below it lies what differs from the kept root. */
  readonly files = join(this.#dir, 'files');
  /** systemd's process, once it was started. */
  #init: number | undefined;

  /** A host with this root, that is removed at the test's end. */
  constructor(
    t: Test,
    private readonly root: string,
  ) {
    for (const name of ['files', 'work', 'root']) mkdirSync(join(this.#dir, name));
    mkdirSync(join(this.files, 'etc'));
    copyFileSync('/etc/resolv.conf', join(this.files, 'etc/resolv.conf'));
    t.teardown(() => rmSync(this.#dir, { recursive: true, force: true }));
  }

  /** Runs lines of bash as root, until one fails; a command line of several ends as its last one does. */
  run(lines: string, environment: Readonly<Record<string, string>> = {}): Ran {
    const command = ['bash', '--norc', '-euc', `exec 2>&1; cd /root\n${lines}`];
    const entered =
      this.#init === undefined
        ? ['unshare', '--mount', '--pid', '--fork', 'sh', '-ec', WITH_NETWORK, this.#dir, this.root, ...command]
        : ['nsenter', '--target', String(this.#init), '--all', ...command];
    const [program = '', ...rest] = entered;
    const env = { PATH, HOME: '/root', LANG: 'C.UTF-8', DEBIAN_FRONTEND: 'noninteractive', ...environment };
    const { status, stdout, stderr } = spawnSync(program, rest, { env, encoding: 'utf8' });
    return { code: status, output: stdout + stderr };
  }

  /** Starts systemd, which must be installed, and waits until it has started its units. */
  async start(t: Test): Promise<void> {
    const hierarchy = CGROUPS.find((path) => existsSync(join(path, 'cgroup.procs')));
    if (hierarchy === undefined) throw new Error('this machine has no cgroup 2 hierarchy');
    const group = join(hierarchy, `ra-host-${process.pid}`);
    mkdirSync(group);
    const spaces = ['--mount', '--pid', '--ipc', '--uts', '--net', '--fork', '--kill-child'];
    const child = spawn('unshare', [...spaces, 'sh', '-ec', WITH_SYSTEMD, this.#dir, this.root, group], {
      stdio: 'inherit',
    });
    const ended = once(child, 'exit');
    t.teardown(async () => {
      child.kill('SIGKILL');
      await ended;
      await eventually('its processes have ended', () => removed(group));
    });
    await eventually('systemd runs', () => {
      this.#init = childrenOf(child.pid ?? 0)[0]?.pid;
      return this.#init !== undefined && existsSync(`/proc/${this.#init}/root/run/systemd/private`);
    });
    // A unit that a container cannot start is no failure.
    this.run('systemctl is-system-running --wait || true');
  }
}

/** Removes a cgroup with those below it. False: a process of it has not ended yet. */
function removed(group: string): boolean {
  try {
    for (const entry of readdirSync(group, { withFileTypes: true }))
      if (entry.isDirectory() && !removed(join(group, entry.name))) return false;
    rmdirSync(group);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EBUSY') return false;
    throw error;
  }
}
