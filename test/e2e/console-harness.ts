/** A sidecar with four accounts under load for the console: more callers than seats, and long prompts. */
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel } from '../support/models.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

/** The environment of the sidecar; not `development`, in which a key is created and printed. */
const ENVIRONMENT = 'staging';

/** Callers of an account; each sends its next request after its last was answered. */
const CALLERS = [
  { account: 'acme', class: 'interactive', callers: 4, words: 60, tokens: 160 },
  { account: 'birch-labs', class: 'standard', callers: 4, words: 260, tokens: 120 },
  { account: 'cobalt', class: 'batch', callers: 5, words: 120, tokens: 240 },
  { account: 'dune', class: 'standard', callers: 2, words: 20, tokens: 60 },
] as const;

const PLAIN = 'the sea was calm and the ship went on to the north while the crew slept ';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

export class ConsoleHarness {
  readonly sidecar: Sidecar;
  readonly #keys: ReadonlyMap<string, string>;
  #running: Promise<unknown> | undefined;
  #stop = new AbortController();

  private constructor(sidecar: Sidecar, keys: ReadonlyMap<string, string>) {
    this.sidecar = sidecar;
    this.#keys = keys;
  }

  /** `config`: settings that replace the harness’s own. `environment`: added to the sidecar’s. */
  static async start(
    t: Owner,
    config: Readonly<Record<string, unknown>> = {},
    environment: Readonly<Record<string, string>> = {},
  ): Promise<ConsoleHarness> {
    const dataDir = await mkdtemp(join(tmpdir(), 'ra-console-'));
    t.teardown(() => rm(dataDir, { recursive: true, force: true }));
    const entitlements = { [ENVIRONMENT]: { models: 'all' } } as const;
    const keys = CALLERS.map(({ account, class: label }) => ({
      account,
      ...makeKey({ account, entitlements, class: label }),
    }));
    await writeKeyFile(join(dataDir, 'keys.json'), { version: 1, keys: keys.map(({ stored }) => stored) });
    const file = await embeddedTestModel();
    const sidecar = await Sidecar.start(t, {
      environment,
      config: {
        dataDir,
        environment: ENVIRONMENT,
        models: [
          // Small steps, so that a prompt’s evaluation is long enough to be visible.
          { id: CHAT, kind: 'chat', file, seats: 8, contextPerSeat: 2048, prefillTokensPerStep: 32, threads: 1 },
          { id: DECIDE, kind: 'decision', file, seats: 2, contextPerSeat: 8192, threads: 1 },
        ],
        queue: { waitingPerSeat: 1, maxWaitMs: 20_000 },
        ...config,
      },
    });
    const harness = new ConsoleHarness(sidecar, new Map(keys.map(({ account, key }) => [account, key])));
    t.teardown(() => harness.end());
    return harness;
  }

  key(account: (typeof CALLERS)[number]['account']): string {
    return this.#keys.get(account) ?? '';
  }

  /** All callers begin. */
  begin(): void {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const callers = CALLERS.flatMap((kind) => Array.from({ length: kind.callers }, (_, i) => ({ ...kind, i })));
    this.#running = Promise.all(callers.map((caller) => this.#call(caller, signal)));
  }

  /** All callers stop; resolves once none of their requests runs. Idempotent. */
  async end(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #call(
    { account, words, tokens, i }: (typeof CALLERS)[number] & { readonly i: number },
    signal: AbortSignal,
  ): Promise<void> {
    const key = this.key(account);
    for (let turn = 0; !signal.aborted; turn += 1) {
      const length = Math.round(words * (0.5 + ((turn * 7 + i * 3) % 10) / 10));
      const content = `${turn} ${i} ${PLAIN.repeat(Math.ceil(length / 16))
        .split(' ')
        .slice(0, length)
        .join(' ')}`;
      const decides = account === 'dune' && turn % 2 === 0;
      const question = { id: 'a', type: 'yes_no', question: 'Is it of the sea?' };
      const [path, body] = decides
        ? ['/decisions', { model: DECIDE, input: content.repeat(12), questions: [question, { ...question, id: 'b' }] }]
        : ['/chat/completions', { ...endless(content), max_tokens: tokens, stream: true }];
      try {
        const response = await this.sidecar.post(path, body, { key, signal });
        await response.text();
        if (response.status !== 200) await pause(Number(response.headers.get('retry-after-ms') ?? 500), signal);
      } catch {
        // The caller disconnected, or the sidecar ended.
        await pause(200, signal);
      }
    }
  }
}

/** A reward for repetition makes greedy decoding continue to the limit. */
function endless(content: string): object {
  return { model: CHAT, messages: [{ role: 'user', content }], temperature: 0, frequency_penalty: -2 };
}

/** Waits for Retry-After, or until the callers stop. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
