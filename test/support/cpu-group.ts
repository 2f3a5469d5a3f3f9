/**
 * A control group that counts the processor time of a process and of all its descendants, killed ones too. Linux, as
 * root.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Where each version of control groups counts: the folder of groups, the file and how many of its units a second has.
 */
const COUNTERS = [
  { root: '/sys/fs/cgroup/cpuacct', file: 'cpuacct.usage', figure: /^(\d+)/, perSecond: 1e9 },
  { root: '/sys/fs/cgroup', file: 'cpu.stat', figure: /^usage_usec (\d+)/m, perSecond: 1e6 },
] as const;

let made = 0;

function usedBy(path: string, { file, figure, perSecond }: (typeof COUNTERS)[number]): number {
  return Number(figure.exec(readFileSync(join(path, file), 'utf8'))?.[1]) / perSecond;
}

/** Seconds of processor time so far of the group at `path`, for one of its processes. */
export function usageOf(path: string): number {
  const counter = COUNTERS.find(({ file }) => existsSync(join(path, file)));
  return counter === undefined ? NaN : usedBy(path, counter);
}

export class CpuGroup {
  readonly #path: string;
  readonly #counter: (typeof COUNTERS)[number];

  private constructor(path: string, counter: (typeof COUNTERS)[number]) {
    this.#path = path;
    this.#counter = counter;
  }

  /** Undefined: this user may create none, or none counts here. */
  static make(): CpuGroup | undefined {
    for (const counter of COUNTERS) {
      const path = join(counter.root, `ra-times-${process.pid}-${(made += 1)}`);
      try {
        mkdirSync(path);
      } catch {
        continue;
      }
      if (existsSync(join(path, counter.file))) return new CpuGroup(path, counter);
      rmdirSync(path);
    }
    return undefined;
  }

  /** The file to which a process’ id is written. */
  get members(): string {
    return join(this.#path, 'cgroup.procs');
  }

  /** Seconds of processor time so far. */
  get usedS(): number {
    return usedBy(this.#path, this.#counter);
  }

  /** The processes in it, those that have ended and were not yet collected among them. */
  get pids(): number[] {
    return readFileSync(this.members, 'utf8').split('\n').filter(Boolean).map(Number);
  }

  /** Takes this process out of it, and removes it if no other is in it: for the end of a process that counts itself. */
  leave(): void {
    try {
      writeFileSync(join(this.#counter.root, 'cgroup.procs'), String(process.pid));
      rmdirSync(this.#path);
    } catch {
      // A process that is left keeps it.
    }
  }

  /** Seconds of processor time so far. Removes the group if no process is left in it. */
  close(): number {
    const used = this.usedS;
    try {
      rmdirSync(this.#path);
    } catch {
      // A process that the test left behind keeps it.
    }
    return used;
  }
}
