/** Stops processes of a sidecar as they start, before any of their own code runs, so that no test has to be faster than they are. */
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { env } from 'node:process';
import { pathToFileURL } from 'node:url';
import { childrenOf, eventually, signalProcess } from './processes.js';
import { shortDir } from './short-dir.js';
import { writeNode } from './stub-node.js';

/** Text in the command line of each kind of process. */
export const ENGINE = 'engine/main.js';
export const SHORT_LANE = 'prompts/host.js short';
export const LONG_LANE = 'prompts/host.js long';

/**
 * Preloaded into the sidecar and all that it starts: into prompt hosts, which have none of its variables, by the program that takes
 * the place of node. A process that stops leaves a file with its id.
 */
const PRELOADED = `
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
if (isMainThread) process.execPath = fileURLToPath(new URL('node', import.meta.url));
let stops = '';
try {
  stops = readFileSync(new URL('stops', import.meta.url), 'utf8');
} catch {}
if (isMainThread && stops !== '' && process.argv.slice(1).join(' ').includes(stops)) {
  writeFileSync(new URL(String(process.pid), import.meta.url), '');
  process.kill(process.pid, 'SIGSTOP');
}
`;

interface Owner {
  teardown(fn: () => void): void;
}

/** Kills the child of `parent` whose command contains this. Throws if there is none. */
export function killChild(parent: number, command: string): void {
  const child = childrenOf(parent).find((each) => each.command.includes(command));
  if (child === undefined) throw new Error(`${parent} has no child ${command}`);
  process.kill(child.pid, 'SIGKILL');
}

/** A process that stopped as it started. */
export interface Stopped {
  readonly pid: number;
  /** Opens the gate and lets the process continue. Throws if it has ended meanwhile: the sidecar waits a minute for a prompt host. */
  readonly goOn: () => void;
}

/** A gate for the processes of one sidecar, open at first. */
export class ProcessGate {
  /** Variables that a test starts the sidecar with. */
  readonly environment: { readonly NODE_OPTIONS: string };
  /** Takes the place of node: a test with a sidecar in its own process sets `process.execPath` to it. */
  readonly node: string;
  readonly #t: Owner;
  readonly #dir: string;
  readonly #seen = new Set<number>();

  /** Its folder is removed with the test `t`. `stub`: engines are stubs, as {@link Sidecar.start} describes it. */
  constructor(t: Owner, { stub = false } = {}) {
    this.#t = t;
    this.#dir = shortDir(t);
    const preloaded = join(this.#dir, 'gate.mjs');
    writeFileSync(preloaded, PRELOADED);
    const options = [env['NODE_OPTIONS'], `--import=${pathToFileURL(preloaded).href}`];
    this.environment = { NODE_OPTIONS: options.filter((option) => option !== undefined).join(' ') };
    this.node = join(this.#dir, 'node');
    const { NODE_OPTIONS } = this.environment;
    writeNode(this.node, { stub, options: NODE_OPTIONS });
  }

  /** From now on a process stops as it starts if its command line contains this. */
  close(command: string): void {
    // Renamed, so that no process reads a part of it.
    writeFileSync(join(this.#dir, 'next'), command);
    renameSync(join(this.#dir, 'next'), join(this.#dir, 'stops'));
  }

  /** From now on none stops. */
  open(): void {
    rmSync(join(this.#dir, 'stops'), { force: true });
  }

  /**
   * Resolves once a process has stopped that was not returned before. Rejects after a minute. It is killed with the test if it is
   * stopped then.
   */
  async stopped(): Promise<Stopped> {
    const next = (): number | undefined => {
      const ids = readdirSync(this.#dir).map(Number).filter(Number.isInteger);
      return ids.find((id) => !this.#seen.has(id) && isStopped(id));
    };
    await eventually('a process that stopped as it started', () => next() !== undefined);
    const pid = next();
    if (pid === undefined) throw new Error('it goes on');
    this.#seen.add(pid);
    this.#t.teardown(() => {
      if (isStopped(pid)) signalProcess(pid, 'SIGKILL');
    });
    const goOn = (): void => {
      this.open();
      process.kill(pid, 'SIGCONT');
    };
    return { pid, goOn };
  }
}

function isStopped(pid: number): boolean {
  try {
    return /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}
