/**
 * What a start of the product costs: `node dist/test/support/start-cost.js [starts]` after `make build`, 5 starts by default. Each
 * serves the seedling with the defaults, from a data folder of its own. Prints for each start the seconds until it is ready and the
 * seconds of processor time by then, user and system, of all processes of its group; then the medians, and the median of each process.
 *
 * With `--again` each start uses the same data folder as the one before.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { groupMembers, signalGroup } from './processes.js';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

/** Linux counts in ticks of 10 ms, on every machine that Node runs on. */
const TICKS_PER_S = 100;

interface Start {
  readonly readyS: number;
  /** Seconds by process: its module, and what else names it. */
  readonly used: ReadonlyMap<string, number>;
}

/** User and system time of a process, and of those of its children that have ended. */
function usedS(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const times = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 15);
  return times.reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_S;
}

async function start(dataDir: string): Promise<Start> {
  const from = performance.now();
  const child = spawn(process.execPath, [CLI, 'serve'], {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { PATH: process.env['PATH'], RA_DATA_DIR: dataDir, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' },
  });
  const ended = once(child, 'exit');
  let printed = '';
  child.stderr.setEncoding('utf8');
  for await (const text of child.stderr as AsyncIterable<string>) {
    printed += text;
    if (printed.includes('is ready at')) break;
  }
  if (!printed.includes('is ready at')) throw new Error(`it did not start: ${printed}`);
  const readyS = (performance.now() - from) / 1000;
  // The engines of several models have one name: their times are added.
  const used = new Map<string, number>();
  for (const { pid, command } of groupMembers(child.pid ?? 0)) {
    const name = /(?:sidecar|engine)\/\S+\.js.*$/.exec(command)?.[0] ?? command;
    used.set(name, (used.get(name) ?? 0) + usedS(pid));
  }
  signalGroup(child.pid ?? 0, 'SIGKILL');
  await ended;
  return { readyS, used };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

const sum = ({ used }: Start): number => [...used.values()].reduce((all, one) => all + one, 0);
const again = process.argv.includes('--again');
const count = Number(process.argv.slice(2).find((argument) => argument !== '--again') ?? 5);
const starts: Start[] = [];
let dataDir = '';
for (let i = 0; i < count; i += 1) {
  if (i === 0 || !again) dataDir = mkdtempSync(join(tmpdir(), 'ra-start-'));
  const one = await start(dataDir);
  starts.push(one);
  process.stdout.write(`${one.readyS.toFixed(2)} s until ready, ${sum(one).toFixed(2)} s of processor time\n`);
  if (i === count - 1 || !again) rmSync(dataDir, { recursive: true, force: true });
}
process.stdout.write(
  `\nmedian of ${count}: ${median(starts.map(({ readyS }) => readyS)).toFixed(2)} s until ready, ` +
    `${median(starts.map(sum)).toFixed(2)} s of processor time\n`,
);
for (const name of new Set(starts.flatMap(({ used }) => [...used.keys()]))) {
  process.stdout.write(`  ${median(starts.map(({ used }) => used.get(name) ?? 0)).toFixed(2)} s ${name}\n`);
}
