/**
 * Walks through pages as their reader would: runs each block in a shell, in a folder that looks like a fresh checkout, with a
 * sidecar beside it.
 *
 *     <dir>/data                 what sidecars keep; every page's .ra points here, so that the model is made once
 *     <dir>/<page>/ra-sidecar    links to the repository's files: where a page's commands run and leave theirs
 *     <dir>/<page>/.state        variables and folder of the shell, from one block to the next
 *
 * A page that starts no sidecar has the default one beside it, which pages share. One that starts its own stops that, since
 * both would have the same data and ports.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { freePort } from '../support/free-port.js';
import { embeddedTestModel } from '../support/models.js';
import { Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';
import type { Block, Page } from './pages.js';
import { stepsOf } from './shell-blocks.js';

/** The longest time of a block, ms; then it hangs. */
const BLOCK_MS = 60_000;

/** The characters of a failed block’s output that are shown. */
const SHOWN = 2000;

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

interface Ports {
  readonly public: number;
  readonly operators: number;
}

/** What earlier pages left to the reader, for blocks that need it. */
interface Here {
  readonly ports: Ports;
  readonly key: string;
  readonly pid: number;
  readonly model: string;
}

/** A block as it runs, with placeholders replaced. These are all replacements. */
function filledIn(text: string, { ports, key, pid, model }: Here): string {
  return text
    .replaceAll(/(?:127\.0\.0\.1|localhost):8080\b/g, `127.0.0.1:${ports.public}`)
    .replaceAll(/(?:127\.0\.0\.1|localhost):9090\b/g, `127.0.0.1:${ports.operators}`)
    .replaceAll('git clone <this repository> ra-sidecar', 'true')
    .replaceAll('/models/my-model.gguf', model)
    .replaceAll('ra-dev-…', key)
    .replaceAll('<pid>', String(pid));
}

export interface ShellResult {
  readonly code: number | null;
  /** The end of its output, for the failure’s message. */
  readonly output: string;
}

export class PageRunner {
  readonly #owner: Owner;
  readonly #dir: string;
  readonly #ports: Ports;
  readonly #model: string;
  #sidecar: Sidecar | undefined;
  /** Options of the running sidecar; pages share the one without any. */
  #startedWith = '';
  #page = '';

  private constructor(owner: Owner, dir: string, ports: Ports, model: string) {
    this.#owner = owner;
    this.#dir = dir;
    this.#ports = ports;
    this.#model = model;
  }

  /** Ending `owner` ends the sidecars and removes the folder. */
  static async begin(owner: Owner): Promise<PageRunner> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-docs-'));
    owner.teardown(() => rm(dir, { recursive: true, force: true }));
    await mkdir(join(dir, 'data'));
    await mkdir(join(dir, 'home'));
    // A refused request makes its block fail.
    await writeFile(join(dir, 'home', '.curlrc'), 'fail-with-body\nshow-error\n');
    const ports = { public: await freePort(), operators: await freePort() };
    return new PageRunner(owner, dir, ports, await embeddedTestModel());
  }

  /** A fresh checkout for a page. The shell starts beside it if the page clones it, otherwise in it. */
  async enter({ path, blocks }: Page): Promise<void> {
    this.#page = join(this.#dir, path.replaceAll('/', '-'));
    const checkout = join(this.#page, 'ra-sidecar');
    await mkdir(checkout, { recursive: true });
    for (const name of await readdir(sourceRoot)) {
      if (name !== '.ra' && name !== '.git') await symlink(join(sourceRoot, name), join(checkout, name));
    }
    await symlink(join(this.#dir, 'data'), join(checkout, '.ra'));
    const clones = blocks.some(({ text }) => text.includes('git clone <this repository>'));
    await writeFile(join(this.#page, '.cwd'), clones ? this.#page : checkout);
    await writeFile(join(this.#page, '.variables'), '');
    await this.#startUnlessRunning(checkout, {});
  }

  /** Writes a block whose first line is a comment with a file’s name, such as `// ra.jsonc`. */
  async save({ text }: Block): Promise<void> {
    const [, name] = /^\/\/ ([\w.-]+)\n/.exec(text) ?? [];
    if (name !== undefined) await writeFile(join(await this.#cwd(), name), filledIn(text, this.#here()));
  }

  /** Runs a block to its end. */
  async run({ text, line }: Block): Promise<ShellResult> {
    for (const step of stepsOf(text)) {
      if (step.kind === 'serve') await this.#startUnlessRunning(await this.#cwd(), step.variables);
      else {
        const ran = await this.#lines(step.text, line);
        if (ran.code !== 0) return ran;
      }
    }
    return { code: 0, output: '' };
  }

  async #lines(text: string, line: number): Promise<ShellResult> {
    // Stopped by the previous block: a supervisor would start it again.
    if (!this.#sidecar) await this.#startUnlessRunning(join(this.#page, 'ra-sidecar'), {});
    const sidecar = this.#sidecar;
    const reads = sidecar?.lines.filter(({ event }) => event === 'keys loaded').length ?? 0;
    const ran = await this.#shell(filledIn(text, this.#here()), line);
    if (ran.code !== 0 || !sidecar) return ran;
    // A new key is valid at once; a revocation is noticed a little later, after a reader’s next command.
    if (/\bkeys (?:revoke|rotate)\b/.test(text)) await sidecar.logged('keys loaded', reads + 1);
    if (/\bkill -TERM <pid>/.test(text)) {
      const { code } = await sidecar.exited();
      this.#sidecar = undefined;
      return { code, output: sidecar.printed.slice(-SHOWN) };
    }
    return ran;
  }

  async #shell(text: string, line: number): Promise<ShellResult> {
    const script = join(this.#page, `line-${line}.sh`);
    const state = (name: string): string => `'${join(this.#page, name)}'`;
    const head = [
      'set -euo pipefail',
      // Variables of a block are set for the next one.
      'set -a',
      `source ${state('.variables')}`,
      `cd "$(cat ${state('.cwd')})"`,
      `trap 'status=$?; export -p > ${join(this.#page, '.variables')}; pwd > ${join(this.#page, '.cwd')}; exit $status' EXIT`,
    ];
    await writeFile(script, [...head, text, ''].join('\n'));
    const env = { PATH: process.env['PATH'] ?? '', HOME: join(this.#dir, 'home'), LC_ALL: 'C.UTF-8' };
    return await new Promise((resolve) => {
      const child = execFile('bash', [script], { env, timeout: BLOCK_MS }, (_, stdout, stderr) =>
        resolve({ code: child.exitCode, output: `${stdout}\n${stderr}`.trim().slice(-SHOWN) }),
      );
    });
  }

  async #startUnlessRunning(cwd: string, variables: Readonly<Record<string, string>>): Promise<void> {
    const with_ = JSON.stringify(Object.keys(variables).length === 0 ? {} : { cwd, variables });
    if (this.#sidecar && this.#startedWith === with_) return;
    await this.#stop();
    const environment = {
      RA_LISTEN_PORT: String(this.#ports.public),
      RA_OPERATORS_PORT: String(this.#ports.operators),
      ...variables,
    };
    this.#sidecar = await Sidecar.startWith(this.#owner, environment, { cwd });
    this.#startedWith = with_;
  }

  async #stop(): Promise<void> {
    this.#sidecar?.child.kill('SIGTERM');
    const ended = await this.#sidecar?.exited();
    if (ended && ended.code !== 0) throw new Error(`the sidecar of ${basename(this.#page)} ended with ${ended.code}`);
    this.#sidecar = undefined;
  }

  async #cwd(): Promise<string> {
    return (await readFile(join(this.#page, '.cwd'), 'utf8')).trim();
  }

  #here(): Here {
    const { key = '', pid = 0 } = this.#sidecar ?? {};
    return { ports: this.#ports, key, pid, model: this.#model };
  }
}
