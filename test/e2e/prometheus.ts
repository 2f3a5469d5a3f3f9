/** Debian’s Prometheus: promtool, and a server for a test. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '../support/free-port.js';
import { eventually } from '../support/processes.js';
import { sourceRoot } from '../support/source-root.js';

const run = promisify(execFile);

/** promtool is quick; one that hangs must not block the run. */
const PROMTOOL_MS = 60_000;

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

/** One value that a query found. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [at: number, value: string];
}

/** promtool’s output, and whether it succeeded. `input`: its stdin. */
export async function promtool(args: readonly string[], input = ''): Promise<{ ok: boolean; said: string }> {
  const done = run('promtool', args, { cwd: sourceRoot, timeout: PROMTOOL_MS });
  done.child.stdin?.end(input);
  try {
    const { stdout, stderr } = await done;
    return { ok: true, said: stdout + stderr };
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { readonly stdout?: string; readonly stderr?: string };
    return { ok: false, said: stdout + stderr };
  }
}

/** A Prometheus that scrapes one target every second and evaluates the rules of deploy/. It ends with its test. */
export class Prometheus {
  readonly #base: string;

  private constructor(port: number) {
    this.#base = `http://127.0.0.1:${port}/api/v1`;
  }

  /** Resolves once it has scraped `target`, a host and port, twice. */
  static async start(t: Owner, target: string): Promise<Prometheus> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-prometheus-'));
    const port = await freePort();
    const config = join(dir, 'prometheus.yml');
    await writeFile(
      config,
      JSON.stringify({
        global: { scrape_interval: '1s', evaluation_interval: '1s' },
        rule_files: [join(sourceRoot, 'deploy/prometheus/alerts.yml')],
        scrape_configs: [{ job_name: 'ra-sidecar', static_configs: [{ targets: [target] }] }],
      }),
    );
    const child = spawn(
      'prometheus',
      [
        `--config.file=${config}`,
        `--storage.tsdb.path=${join(dir, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--log.level=error',
      ],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    const gone = once(child, 'exit');
    t.teardown(async () => {
      child.kill('SIGKILL');
      await gone;
      await rm(dir, { recursive: true, force: true });
    });
    const prometheus = new Prometheus(port);
    await prometheus.scraped(2);
    return prometheus;
  }

  /** Resolves once the target has been scraped at least so often in the last minutes. */
  async scraped(times: number): Promise<void> {
    await eventually(`${times} scrapes`, async () => {
      const [found] = await this.query('sum(count_over_time(up{job="ra-sidecar"}[5m]))').catch(() => []);
      return Number(found?.value[1] ?? 0) >= times;
    });
  }

  /** Rejects with Prometheus’ error for the expression. */
  async query(expr: string): Promise<readonly Sample[]> {
    const answer = await fetch(`${this.#base}/query?query=${encodeURIComponent(expr)}`);
    const { status, data, error } = (await answer.json()) as {
      readonly status: string;
      readonly error?: string;
      readonly data?: { readonly result: readonly Sample[] };
    };
    if (status !== 'success' || !data) throw new Error(`${expr}: ${error ?? status}`);
    return data.result;
  }

  /** Each rule’s name, whether it can be evaluated, and whether it fires. */
  async rules(): Promise<readonly { readonly name: string; readonly health: string; readonly state: string }[]> {
    const { data } = (await (await fetch(`${this.#base}/rules`)).json()) as {
      readonly data: { readonly groups: readonly { readonly rules: readonly never[] }[] };
    };
    return data.groups.flatMap(({ rules }) => rules);
  }
}
