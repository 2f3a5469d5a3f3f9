/** A sidecar whose console manages keys: some of each kind, and credit. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeKeyFile, type StoredKey } from '../../sidecar/access/key-file.js';
import { InProcess } from '../support/in-process.js';
import { makeKey } from '../support/keys.js';

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

const all = { development: { models: 'all' } } as const;

export class KeysConsole {
  readonly sidecar: InProcess;
  readonly secret: string;
  /** The keys themselves, which must be nowhere. */
  readonly keys: readonly string[];
  /** Of one key each. */
  readonly ids: { readonly acme: string; readonly revoked: string };

  private constructor(sidecar: InProcess, secret: string, made: ReturnType<typeof makeKey>[]) {
    this.sidecar = sidecar;
    this.secret = secret;
    this.keys = made.map(({ key }) => key);
    this.ids = { acme: made[0]?.stored.id ?? '', revoked: made[2]?.stored.id ?? '' };
  }

  static async start(t: Owner, { withSecret = true } = {}): Promise<KeysConsole> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-keys-console-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const secret = 'o'.repeat(40);
    const secretFile = join(dir, 'operators.txt');
    await writeFile(secretFile, `${secret}\n`, { mode: 0o600 });
    const limited: Partial<StoredKey> = {
      class: 'interactive',
      expires: '2099-03-01T12:30:00Z',
      limits: { chat: { inFlight: 4, perMinute: 60 } },
    };
    const made = [
      makeKey({
        ...limited,
        entitlements: { development: { models: 'all', tokensPerDay: 2_000_000, usage: 'account', tiers: ['flex'] } },
      }),
      makeKey({ entitlements: { development: { models: ['large-chat'], routes: ['chat'] } }, class: 'standard' }),
      makeKey({ revoked: '2026-10-01T00:00:00Z' }),
      makeKey({ account: 'birch-labs', class: 'batch', entitlements: all }),
      makeKey({ account: 'birch-labs', expires: '2026-10-02T00:00:00Z' }),
      makeKey({ account: 'cobalt', entitlements: { production: { models: 'all' } } }),
    ];
    await writeKeyFile(join(dir, 'keys.json'), {
      version: 1,
      accounts: { 'birch-labs': { frozen: true, tokensPerMonth: 50_000_000 } },
      keys: made.map(({ stored }) => stored),
    });
    await writeFile(
      join(dir, 'credit.json'),
      JSON.stringify({ version: 1, accounts: { acme: [{ id: 'inv-1', usd: '2.50' }] } }),
    );
    const sidecar = await InProcess.start(t, {
      models: [
        { id: 'large-chat', kind: 'chat' },
        { id: 'decide', kind: 'decision' },
      ],
      followsKeys: true,
      config: {
        dataDir: dir,
        operators: { port: 0, ...(withSecret && { secretFile }) },
        credit: { file: join(dir, 'credit.json') },
        console: { intervalMs: 250 },
      },
    });
    return new KeysConsole(sidecar, secret, made);
  }
}
