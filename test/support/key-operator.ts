/** The operators' routes of keys over HTTP, without the rest of a sidecar: in this process, or in one of their own. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import process, { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { WatchedKeys } from '../../sidecar/access/key-identity.js';
import { keyRoutes, type KeysServices } from '../../sidecar/api/key-routes.js';
import { Server } from '../../sidecar/http/server.js';
import { systemClock } from '../../sidecar/lib/clock.js';

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

/** As the sidecar names the operator. */
export const OPERATOR = '0badcafe';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: AnswerBody;
}

/** What the tests read, of which each answer has some. */
interface AnswerBody {
  readonly id: string;
  readonly key: string;
  readonly data: readonly { readonly id: string }[];
  readonly accounts: unknown;
  readonly entitlements: unknown;
  readonly limits: unknown;
  readonly quotas: unknown;
  readonly expires: unknown;
  readonly hash: unknown;
}

/** One listener whose requests are all of one operator. */
export class KeyOperator {
  readonly port: number;

  constructor(port: number) {
    this.port = port;
  }

  /**
   * `dir`: the data folder, in which `keys.json` is. `credit`: in it, `credit.json` is the credit file. `operator`: null: no secret is
   * configured.
   */
  static async start(
    t: Owner,
    dir: string,
    {
      keysFile = join(dir, 'keys.json'),
      operator = OPERATOR,
      services = {},
    }: {
      readonly keysFile?: string;
      readonly operator?: string | null;
      readonly services?: Partial<KeysServices>;
    } = {},
  ): Promise<KeyOperator> {
    const nothing = (): void => undefined;
    const watched = await WatchedKeys.open(
      systemClock,
      { file: keysFile, environment: 'development', pollMs: 60_000, development: false },
      { loaded: nothing, closed: nothing, refused: nothing },
    );
    const config = {
      dataDir: dir,
      environment: 'development',
      keys: { source: 'file' as const, file: keysFile, pollMs: 60_000, failuresPerMinute: 0 },
      credit: {
        file: join(dir, 'credit.json'),
        pollMs: 60_000,
        onLostBalances: 'refuse' as const,
        reserve: 'whole' as const,
        source: 'file' as const,
      },
      models: [],
    };
    const server = new Server({
      routes: keyRoutes({
        config,
        services: () => ({ credit: undefined, keysFile: watched, ...services }),
        operatorOf: () => operator ?? undefined,
      }),
      origins: [],
      clock: systemClock,
      limits: { totalBytes: 1 << 20 },
      onFault: (fault) => {
        throw fault;
      },
    });
    const { port } = await server.listen('127.0.0.1', 0);
    t.teardown(async () => {
      await server.close();
      watched.close();
    });
    return new KeyOperator(port);
  }

  /** The same in a process, whose end is the caller's to wait for. */
  static async fork(
    dir: string,
    keysFile: string,
  ): Promise<{ readonly at: KeyOperator; readonly child: ChildProcess }> {
    const child = fork(fileURLToPath(import.meta.url), [dir, keysFile], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const [port] = (await once(child, 'message')) as [number];
    return { at: new KeyOperator(port), child };
  }

  async ask(
    method: string,
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, {
      method,
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: answer.status, headers: answer.headers, body: (await answer.json()) as AnswerBody };
  }

  post(path: string, body: unknown = {}): Promise<Answer> {
    return this.ask('POST', path, body);
  }

  patch(id: string, body: unknown): Promise<Answer> {
    return this.ask('PATCH', `/keys/${id}`, body);
  }
}

/** A data folder with no keys, and an empty credit file. */
export async function emptyKeys(dir: string): Promise<string> {
  await writeFile(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: [] }));
  await writeFile(join(dir, 'credit.json'), JSON.stringify({ version: 1, accounts: {} }));
  return dir;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const [dir = '', keysFile = ''] = argv.slice(2);
  const { port } = await KeyOperator.start({ teardown: () => undefined }, dir, { keysFile });
  process.send?.(port);
}
