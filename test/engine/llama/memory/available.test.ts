import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { availableMemory } from '../../../../engine/llama/memory/available.js';

const GIB = 2 ** 30;
const kB = (bytes: number): string => `${bytes / 1024} kB`;

/** What is available where the system has these files. */
function available(t: Test, files: Readonly<Record<string, string>>): number | undefined {
  const root = t.testdir({});
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return availableMemory(root);
}

const meminfo = `MemTotal: ${kB(32 * GIB)}\nMemFree:         ${kB(GIB)}\nMemAvailable:   ${kB(20 * GIB)}\n`;
const V2 = '31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate\n';
const V1 =
  '40 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n' +
  '41 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n';

t.test('without control groups: the kernel’s available memory', (t) => {
  t.equal(available(t, { '/proc/meminfo': meminfo }), 20 * GIB);
  t.end();
});

t.test('on other systems than Linux it is unknown', (t) => {
  t.equal(available(t, {}), undefined);
  t.end();
});

t.test('version 2: the tightest enclosing group, with its page cache counted as free', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/mountinfo': V2,
    '/proc/self/cgroup': '0::/pod/box\n',
    '/sys/fs/cgroup/pod/box/memory.max': 'max\n',
    '/sys/fs/cgroup/pod/box/memory.current': `${GIB}\n`,
    '/sys/fs/cgroup/pod/memory.max': `${8 * GIB}\n`,
    '/sys/fs/cgroup/pod/memory.current': `${5 * GIB}\n`,
    '/sys/fs/cgroup/pod/memory.stat': `anon 1\ninactive_file ${GIB}\nactive_file ${2 * GIB}\nfile 7\n`,
  };
  t.equal(available(t, all), 6 * GIB);
  t.equal(available(t, { ...all, '/sys/fs/cgroup/pod/memory.max': `${64 * GIB}` }), 20 * GIB);
  t.equal(available(t, { ...all, '/sys/fs/cgroup/pod/memory.max': `${GIB}` }), 0, 'never below nothing');
  t.end();
});

t.test('version 2 in a container: the process’s path is not mounted, its root is', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/mountinfo': V2,
    '/proc/self/cgroup': '0::/kubepods/a\n',
    '/sys/fs/cgroup/memory.max': `${4 * GIB}`,
    '/sys/fs/cgroup/memory.current': `${GIB}`,
  };
  t.equal(available(t, all), 3 * GIB);
  t.end();
});

t.test('version 1: a limit above the machine’s memory is ignored', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/mountinfo': V1,
    '/proc/self/cgroup': '9:name=systemd:/\n4:memory:/box\n3:cpu,cpuacct:/other\n0::/\n',
    '/sys/fs/cgroup/memory/box/memory.limit_in_bytes': `${3 * GIB}`,
    '/sys/fs/cgroup/memory/box/memory.usage_in_bytes': `${2 * GIB}`,
    '/sys/fs/cgroup/memory/box/memory.stat': `inactive_file 5\ntotal_inactive_file ${GIB}\ntotal_active_file 0\n`,
    '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712',
    '/sys/fs/cgroup/memory/memory.usage_in_bytes': `${10 * GIB}`,
  };
  t.equal(available(t, all), 2 * GIB);
  t.end();
});

t.test('a group that is mounted elsewhere', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/mountinfo': '31 23 0:28 /pod /groups rw shared:9 - cgroup2 cgroup rw\n',
    '/proc/self/cgroup': '0::/pod/box\n',
    '/groups/box/memory.max': `${4 * GIB}\n`,
    '/groups/box/memory.current': `${GIB}\n`,
  };
  t.equal(available(t, all), 3 * GIB);
  t.end();
});
