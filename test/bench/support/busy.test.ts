import { execFileSync } from 'node:child_process';
import t from 'tap';
import { OtherWork } from '../../../bench/support/busy.js';

t.test('what else is done is not known to a process that does not count its own work', async (t) => {
  t.equal(new OtherWork().cores, undefined);
});

/** What a child works before it is killed, in processor time. */
const WORK_MS = 500;

t.test('the work of a process and of those that it started, killed ones too, is not other work', async (t) => {
  const module = JSON.stringify(new URL('../../../bench/support/busy.js', import.meta.url).href);
  const processes = JSON.stringify(new URL('../../support/processes.js', import.meta.url).href);
  // The machine's work, that of other tests among it, is compared with what of it is other work: the difference is what the
  // script's child did.
  const script = `
    const { spawn } = await import('node:child_process');
    const { cpus } = await import('node:os');
    const { countOwnWork, OtherWork } = await import(${module});
    const { eventually, usedCpuMs } = await import(${processes});
    const busyMs = () => cpus().reduce((sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq, 0);
    countOwnWork();
    const [other, before, from] = [new OtherWork(), busyMs(), performance.now()];
    const child = spawn(process.execPath, ['-e', 'for (;;);']);
    await eventually('its work', () => usedCpuMs(child.pid) >= ${WORK_MS});
    child.kill('SIGKILL');
    await new Promise((ended) => child.once('exit', ended));
    const { cores } = other;
    const ms = performance.now() - from;
    console.log(JSON.stringify({ cores, ms, all: (busyMs() - before) / ms }));`;
  const out = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  const { cores, ms, all } = JSON.parse(out) as { cores?: number; ms: number; all: number };
  if (cores === undefined) t.pass('this user may create no control group');
  else t.ok((all - cores) * ms > 0.8 * WORK_MS, `${cores} of ${all} cores in ${ms} ms`);
});
