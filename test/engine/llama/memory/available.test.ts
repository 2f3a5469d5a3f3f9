import t from 'tap';
import { availableMemory, type ReadText } from '../../../../engine/llama/memory/available.js';

const GIB = 2 ** 30;
const kB = (bytes: number): string => `${bytes / 1024} kB`;

function files(all: Readonly<Record<string, string>>): ReadText {
  return (path) => all[path];
}

const meminfo = `MemTotal: ${kB(32 * GIB)}\nMemFree:         ${kB(GIB)}\nMemAvailable:   ${kB(20 * GIB)}\n`;

t.test('without control groups: the kernel’s available memory', (t) => {
  t.equal(availableMemory(files({ '/proc/meminfo': meminfo })), 20 * GIB);
  t.end();
});

t.test('on other systems than Linux it is unknown', (t) => {
  t.equal(availableMemory(files({})), undefined);
  t.end();
});

t.test('version 2: the tightest enclosing group, with its page cache counted as free', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/cgroup': '0::/pod/box\n',
    '/sys/fs/cgroup/pod/box/memory.max': 'max\n',
    '/sys/fs/cgroup/pod/box/memory.current': `${GIB}\n`,
    '/sys/fs/cgroup/pod/memory.max': `${8 * GIB}\n`,
    '/sys/fs/cgroup/pod/memory.current': `${5 * GIB}\n`,
    '/sys/fs/cgroup/pod/memory.stat': `anon 1\ninactive_file ${GIB}\nactive_file ${2 * GIB}\nfile 7\n`,
  };
  t.equal(availableMemory(files(all)), 6 * GIB);
  t.equal(availableMemory(files({ ...all, '/sys/fs/cgroup/pod/memory.max': `${64 * GIB}` })), 20 * GIB);
  t.equal(availableMemory(files({ ...all, '/sys/fs/cgroup/pod/memory.max': `${GIB}` })), 0, 'never below nothing');
  t.end();
});

t.test('version 2 in a container: the process’s path is not mounted, its root is', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/cgroup': '0::/kubepods/a\n',
    '/sys/fs/cgroup/memory.max': `${4 * GIB}`,
    '/sys/fs/cgroup/memory.current': `${GIB}`,
  };
  t.equal(availableMemory(files(all)), 3 * GIB);
  t.end();
});

t.test('version 1: a limit above the machine’s memory is ignored', (t) => {
  const all = {
    '/proc/meminfo': meminfo,
    '/proc/self/cgroup': '9:name=systemd:/\n4:cpu,memory:/box\n0::/\n',
    '/sys/fs/cgroup/memory/box/memory.limit_in_bytes': `${3 * GIB}`,
    '/sys/fs/cgroup/memory/box/memory.usage_in_bytes': `${2 * GIB}`,
    '/sys/fs/cgroup/memory/box/memory.stat': `inactive_file 5\ntotal_inactive_file ${GIB}\ntotal_active_file 0\n`,
    '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712',
    '/sys/fs/cgroup/memory/memory.usage_in_bytes': `${10 * GIB}`,
  };
  t.equal(availableMemory(files(all)), 2 * GIB);
  t.end();
});
