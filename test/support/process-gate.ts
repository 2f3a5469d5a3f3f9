/** Stops processes of a sidecar as they start, before any of their own code runs, so that no test has to be faster than they. */
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { childrenOf, eventually } from './processes.js';
import { shortDir } from './short-dir.js';

/** What the command of each kind of process has. */
export const ENGINE = 'engine/main.js';
export const SHORT_LANE = 'prompts/host.js short';
export const LONG_LANE = 'prompts/host.js long';

/** Preloaded into the sidecar and all that it starts. A process that stops leaves a file with its id. */
const PRELOADED = `
import { readFileSync, writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
let stops = '';
try {
  stops = readFileSync(new URL('stops', import.meta.url), 'utf8');
} catch {}
if (isMainThread && stops !== '' && process.argv.slice(1).join(' ').includes(stops)) {
  writeFileSync(new URL(String(process.pid), import.meta.url), '');
  process.kill(process.pid, 'SIGSTOP');
}
`;

/** Kills the child of `parent` whose command contains this. Throws if there is none. */
export function killChild(parent: number, command: string): void {
  const child = childrenOf(parent).find((each) => each.command.includes(command));
  if (child === undefined) throw new Error(`${parent} has no child ${command}`);
  process.kill(child.pid, 'SIGKILL');
}

export interface Stopped {
  readonly pid: number;
  /** Opens the gate too. */
  readonly goOn: () => void;
}

/** A gate for the processes of one sidecar, open at first. */
export class ProcessGate {
  /** For the sidecar. */
  readonly environment: { readonly NODE_OPTIONS: string };
  readonly #dir: string;
  readonly #seen = new Set<number>();

  constructor(t: { teardown(fn: () => void): void }) {
    this.#dir = shortDir(t);
    const preloaded = join(this.#dir, 'gate.mjs');
    writeFileSync(preloaded, PRELOADED);
    this.environment = { NODE_OPTIONS: `--import=${pathToFileURL(preloaded).href}` };
  }

  /** From now on a process stops as it starts if its command contains this. */
  close(command: string): void {
    // Renamed, so that no process reads a part of it.
    writeFileSync(join(this.#dir, 'next'), command);
    renameSync(join(this.#dir, 'next'), join(this.#dir, 'stops'));
  }

  open(): void {
    rmSync(join(this.#dir, 'stops'), { force: true });
  }

  /** Resolves once this process has stopped so; without an id, once one has that was not returned before. */
  async stopped(pid?: number): Promise<Stopped> {
    const isNext = (id: number): boolean => (pid === undefined ? !this.#seen.has(id) : id === pid) && isStopped(id);
    let found: number | undefined;
    await eventually('a process that stopped as it started', () => {
      const ids = readdirSync(this.#dir).map(Number).filter(Number.isInteger);
      return (found = ids.find(isNext)) !== undefined;
    });
    const id = found ?? 0;
    this.#seen.add(id);
    const goOn = (): void => {
      this.open();
      process.kill(id, 'SIGCONT');
    };
    return { pid: id, goOn };
  }
}

function isStopped(pid: number): boolean {
  try {
    return /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}
