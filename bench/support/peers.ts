/** llama.cpp’s own programs, built by `make peers` from the same source as the addon. */
import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { hasEnded } from './children.js';
import { peakMiB } from './memory.js';
import { freePort } from '../../test/support/free-port.js';

const run = promisify(execFile);

/** From dist/bench/support. */
const BIN = fileURLToPath(new URL('../../../bench/.cache/peers/build/bin/', import.meta.url));

/** llama-batched-bench beside links to node-llama-cpp's libraries, under the names that it was linked with. */
const ON_NPM = join(BIN, '../../npm');

/** A model loads in seconds; after this time it has failed. */
const START_MS = 120_000;

/** How often the memory of a process that ends by itself is read. */
const LOOK_MS = 100;

/** Path of a peer’s program. Throws with what to do if it does not exist. */
function peer(name: 'llama-server' | 'llama-batched-bench'): string {
  const path = join(BIN, name);
  if (!existsSync(path)) throw new Error(`${path} is not there: run "make peers" first (5 to 10 minutes)`);
  return path;
}

/**
 * A folder with the peers in which the dynamic linker finds the libraries of node-llama-cpp's package for this processor, in place of
 * those of `make peers`: ggml looks for its backends beside the program. Made anew at each call.
 */
function onNpmLibraries(): string {
  const name = `linux-${process.arch}`;
  const libraries = join(dirname(fileURLToPath(import.meta.resolve(`@node-llama-cpp/${name}`))), '..', 'bins', name);
  rmSync(ON_NPM, { recursive: true, force: true });
  mkdirSync(ON_NPM);
  for (const name of ['llama-batched-bench', 'llama-server'] as const) copyFileSync(peer(name), join(ON_NPM, name));
  for (const file of readdirSync(libraries).filter((each) => each.endsWith('.so'))) {
    symlinkSync(join(libraries, file), join(ON_NPM, file));
    const soname = /^(libllama|libggml|libggml-base|libllama-common)(\.v[\d.]+)?\.so$/.exec(file)?.[1];
    if (soname !== undefined) symlinkSync(join(libraries, file), join(ON_NPM, `${soname}.so.0`));
  }
  return ON_NPM;
}

/** This process's environment, in which the dynamic linker looks into `folder` first. */
function withLibraries(folder: string): NodeJS.ProcessEnv {
  return { ...process.env, LD_LIBRARY_PATH: `${folder}:${BIN}` };
}

export interface BatchedRun {
  readonly sequences: number;
  /** Generated tokens over prefill and generation together. */
  readonly tokensPerSecond: number;
  /** Generated tokens over generation alone. */
  readonly generating: number;
  /** The most memory of the process in all its runs, MiB. */
  readonly peakMiB: number;
}

export interface BatchedOptions {
  readonly threads: number;
  readonly promptTokens: number;
  /** Of each sequence, of which the prompt's decode gives the first one, as in a server: one decode fewer than tokens. */
  readonly tokens: number;
  readonly sequences: readonly number[];
  /** More arguments, such as `-ngl 99`. */
  readonly more?: readonly string[];
  /** Whose build of llama.cpp's libraries it runs on: that of `make peers`, or of the npm package. */
  readonly libraries?: 'peers' | 'npm';
}

/** One run of llama-batched-bench: prefill and generation of `sequences` at once, with nothing sampled. */
export async function batchedBench(file: string, options: BatchedOptions): Promise<BatchedRun[]> {
  const { threads, promptTokens, tokens, sequences, more = [], libraries } = options;
  const npm = libraries === 'npm' ? onNpmLibraries() : undefined;
  const program = npm === undefined ? peer('llama-batched-bench') : join(npm, 'llama-batched-bench');
  // llama.cpp rounds each sequence’s share up to 256 cells.
  const context = Math.max(...sequences) * Math.ceil((promptTokens + tokens) / 256) * 256;
  const lengths = ['-npp', `${promptTokens}`, '-ntg', `${tokens - 1}`, '-npl', sequences.join(',')];
  const batch = ['-c', `${context}`, '-b', '2048', '-ub', '512', '-t', `${threads}`, '-tb', `${threads}`];
  const running = run(program, ['-m', file, ...batch, ...lengths, '--output-format', 'jsonl', ...more], {
    maxBuffer: 1 << 24,
    env: npm === undefined ? process.env : withLibraries(npm),
  });
  let peak = 0;
  const looking = setInterval(() => {
    void peakMiB(Number(running.child.pid)).then((now) => (peak = Number.isNaN(now) ? peak : now));
  }, LOOK_MS);
  const { stdout } = await running.finally(() => clearInterval(looking));
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
  if (lines.length === 0) throw new Error('llama-batched-bench printed no result');
  return lines.map((line) => {
    const row = JSON.parse(line) as { pl: number; tg: number; t_pp: number; t_tg: number };
    return {
      sequences: row.pl,
      tokensPerSecond: (tokens * row.pl) / (row.t_pp + row.t_tg),
      generating: (row.tg * row.pl) / row.t_tg,
      peakMiB: peak,
    };
  });
}

/**
 * For servers whose requests say `cache_prompt: false`. By default llama-server nevertheless copies each slot's whole state to host
 * memory before the slot's next request, and looks through all such copies for one to begin with.
 */
export const NO_PROMPT_CACHE = ['--cache-ram', '0'] as const;

/** A running llama-server on a free port. Its owner closes it. */
export class LlamaServer {
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  /**
   * `slots` sequences of `contextPerSlot` tokens. Resolves once it answers /health with 200. `cores`: where its main
   * thread is kept, which computes: the only one that does if there is one compute thread.
   */
  static async start(
    file: string,
    options: {
      threads: number;
      slots: number;
      contextPerSlot: number;
      cores?: string;
      more?: readonly string[];
      /** Absent: a free one. */
      port?: number;
      /** Whose build of llama.cpp's libraries it runs on: that of `make peers`, or of the npm package. */
      libraries?: 'peers' | 'npm';
    },
  ): Promise<LlamaServer> {
    const { threads, slots, contextPerSlot, cores, more = [], libraries } = options;
    const npm = libraries === 'npm' ? onNpmLibraries() : undefined;
    const port = options.port ?? (await freePort());
    const child = spawn(
      npm === undefined ? peer('llama-server') : join(npm, 'llama-server'),
      [
        ...['-m', file, '--host', '127.0.0.1', '--port', `${port}`, '-np', `${slots}`],
        ...['-c', `${slots * contextPerSlot}`, '-t', `${threads}`, '-tb', `${threads}`, '--no-webui', '--log-disable'],
        ...more,
      ],
      { stdio: 'ignore', ...(npm !== undefined && { env: withLibraries(npm) }) },
    );
    const server = new LlamaServer(child, port);
    const until = performance.now() + START_MS;
    while (!(await server.#healthy())) {
      if (hasEnded(child) || performance.now() > until) throw new Error('llama-server did not start');
      await new Promise((again) => setTimeout(again, 100));
    }
    if (cores !== undefined) execFileSync('taskset', ['-cp', cores, String(server.pid)], { stdio: 'ignore' });
    return server;
  }

  get pid(): number {
    return Number(this.#child.pid);
  }

  async close(): Promise<void> {
    if (hasEnded(this.#child)) return;
    const gone = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await gone;
  }

  async #healthy(): Promise<boolean> {
    return await fetch(`http://127.0.0.1:${this.port}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  }
}
