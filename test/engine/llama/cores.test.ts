import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { computeThreads, coresProblem } from '../../../engine/llama/cores.js';
import { usableCores } from '../../../engine/protocol/usable-cores.js';
import { threadCores } from '../../support/processes.js';

t.test('compute threads', (t) => {
  t.equal(computeThreads({ threads: 0 }), Math.max(1, usableCores().cores - 1), 'all cores but one');
  t.equal(computeThreads({ threads: 3 }), 3);
  t.equal(computeThreads({ threads: 0, cores: '7' }), 1, 'one for each core');
  t.equal(computeThreads({ threads: 0, cores: '0-3,8,10-11' }), 7);
  t.equal(computeThreads({ threads: 2, cores: '0-3' }), 2);
  t.end();
});

const V2 = '31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate\n';
const V1 =
  '40 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n' +
  '41 31 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n';

t.test('a CPU quota of the control group or of a parent limits the cores', async (t) => {
  // The quotas by the group's folder, each of a period of 100 ms.
  type Quotas = Readonly<Record<string, number | 'max'>>;
  const cases: [what: string, groups: string, quotas: Quotas, quota: number | undefined, cores: number][] = [
    ['none', '0::/a\n', { a: 'max' }, undefined, 16],
    ['its own', '0::/a\n', { a: 250_000 }, 2.5, 3],
    ['a parent’s', '0::/a/b\n', { '.': 'max', a: 200_000, 'a/b': 400_000 }, 2, 2],
    ['of the namespace', '0::/../other\n', { '.': 50_000 }, 0.5, 1],
    ['of a container whose path is the host’s', '0::/kubepods/x\n', { '.': 150_000 }, 1.5, 2],
    ['more than there is', '0::/\n', { '.': 6_400_000 }, 64, 16],
    ['cgroup 1, none', '4:cpu,cpuacct:/docker/x\n0::/\n', { 'cpu,cpuacct': -1 }, undefined, 16],
    ['cgroup 1', '3:cpuset:/\n4:cpu,cpuacct:/docker/x\n', { 'cpu,cpuacct': 250_000 }, 2.5, 3],
    ['cgroup 1, a parent’s', '4:cpu,cpuacct:/docker/x/y\n', { 'cpu,cpuacct': 100_000, 'cpu,cpuacct/y': -1 }, 1, 1],
    ['cgroup 1, beside the mounted one', '4:cpu,cpuacct:/docker/xy\n', { 'cpu,cpuacct/docker/xy': 150_000 }, 1.5, 2],
  ];
  for (const [what, cgroup, quotas, quota, cores] of cases) {
    const older = what.startsWith('cgroup 1');
    const status = 'Name:\tnode\nCpus_allowed_list:\t0-15\n';
    const root = t.testdir({ proc: { self: { status, mountinfo: older ? V1 : V2, cgroup } } });
    for (const [group, most] of Object.entries(quotas)) {
      const folder = join(root, 'sys/fs/cgroup', group);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, older ? 'cpu.cfs_quota_us' : 'cpu.max'), older ? `${most}\n` : `${most} 100000\n`);
      if (older) writeFileSync(join(folder, 'cpu.cfs_period_us'), '100000\n');
    }
    t.same(usableCores(root), { cores, present: 16, quota }, what);
  }
  const { cores, present } = usableCores(t.testdir({}));
  t.ok(cores >= 1 && cores === present, 'without these files');
});

t.test('cores that can be used, and that cannot', (t) => {
  const [may = ''] = threadCores(process.pid);
  const [first = ''] = may.split(/[-,]/);
  t.equal(coresProblem({ threads: 1 }), undefined);
  t.equal(coresProblem({ threads: 0, cores: may }), undefined);
  t.equal(coresProblem({ threads: 1, cores: first }), undefined);
  t.equal(coresProblem({ threads: 1, cores: `${first},4094-4095` }), `cores 4094,4095 cannot be used here, ${may} can`);
  t.equal(coresProblem({ threads: 1, cores: '3-1' }), 'cores 3-1 are none');
  t.equal(
    coresProblem({ threads: 2, cores: first }),
    `on cores ${first} 2 compute threads would wait for each other: threads 0 is one for each`,
  );
  t.end();
});
