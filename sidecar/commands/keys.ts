/**
 * `ra-sidecar keys`: makes, lists, revokes and rotates the keys of the keys file. A running sidecar takes the change by
 * itself. A new key goes to stdout, alone, and is nowhere else; what is said of it goes to stderr.
 */
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { readKeyFile } from '../access/key-file.js';
import { isFrozen } from '../access/key-identity.js';
import { limitsOf, type KeyFile, type StoredKey } from '../access/key-file-schema.js';
import { KeyStore, type NewKey } from '../access/keys.js';
import type { Config } from '../config.js';
import { durationMs, propertiesOf, UsageError } from './key-options.js';

export const KEYS_HELP = `usage: ra-sidecar keys create --account A [options]
       ra-sidecar keys list [--json]
       ra-sidecar keys revoke ID
       ra-sidecar keys rotate ID [--grace 24h]

  create   make a key and print it once; only its hash is stored
  list     all keys, without their hashes
  revoke   the key works no more, from now on
  rotate   a new key with all that the old one may; the old one is revoked, or works on for the grace

options of create:
  --account A           whose key it is (required)
  --environment E       where it may call what follows; default: the configured environment
  --models a,b | all    default: all
  --routes chat,...     of chat, decisions, systemone; default: all
  --cohort C            whose gated models it may call
  --expires T           a time (2027-01-31T00:00:00Z) or from now (30d, 12h, 90m); default: never
  --class C             interactive, standard or batch; default: standard
  --limits G=N/M,...    N in flight and M a minute for decisions, chat or models; 0: no limit
  --tokens-per-day N    prompt and completion tokens, by UTC day
`;

/** Where the command writes. */
export interface Output {
  /** What was asked for. */
  out(text: string): void;
  /** What is said about it. */
  say(text: string): void;
}

/** What of the configuration this command needs. */
type Settings = Pick<Config, 'keys' | 'environment'>;

/** Runs `keys` with these arguments. Resolves with the exit code: 0, 1 not done, 2 a wrong command line. */
export async function keys(config: Settings, args: readonly string[], output: Output): Promise<number> {
  try {
    return await run(config, args, output);
  } catch (error) {
    if (!isUsage(error)) throw error;
    output.say(`ra-sidecar: ${error.message}\n\n${KEYS_HELP}`);
    return 2;
  }
}

/** Ours, and those of parseArgs, whose words name options and no values of secret. */
function isUsage(error: unknown): error is Error {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return error instanceof UsageError || code.startsWith('ERR_PARSE_ARGS_');
}

async function run(config: Settings, [action, ...rest]: readonly string[], output: Output): Promise<number> {
  const store = new KeyStore(config.keys.file);
  switch (action) {
    case 'create': {
      const values = parsed(rest, CREATE, 0).values;
      const properties = propertiesOf(values, config.environment, Date.now());
      return show(await store.create(properties), 'created', output);
    }
    case 'list':
      output.out(listed(await readKeyFile(config.keys.file), parsed(rest, LIST, 0).values.json === true));
      return 0;
    case 'revoke':
      return revoke(store, parsed(rest, {}, 1).id, output);
    case 'rotate': {
      const { id, values } = parsed(rest, ROTATE, 1);
      return rotate(store, id, durationMs('--grace', values.grace ?? '0m'), output);
    }
    default:
      throw new UsageError(action === undefined ? 'keys: what to do?' : 'keys: unknown command');
  }
}

const text = { type: 'string' } as const;
const CREATE = {
  account: text,
  environment: text,
  models: text,
  routes: text,
  cohort: text,
  expires: text,
  class: text,
  limits: text,
  'tokens-per-day': text,
} as const;
const LIST = { json: { type: 'boolean' } } as const;
const ROTATE = { grace: text } as const;

/** Options and, if `ids` is 1, the one id that must be given. */
function parsed<T extends NonNullable<ParseArgsConfig['options']>>(
  args: readonly string[],
  options: T,
  ids: 0 | 1,
): { readonly values: ReturnType<typeof parseArgs<{ options: T }>>['values']; readonly id: string } {
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  if (positionals.length !== ids) throw new UsageError(ids === 1 ? 'one ID is needed' : 'too many arguments');
  return { values, id: positionals[0] ?? '' };
}

function show({ key, id }: NewKey, what: string, output: Output): number {
  output.out(`${key}\n`);
  output.say(`${what} ${id}; the key is shown this once, only its hash is stored\n`);
  return 0;
}

async function revoke(store: KeyStore, id: string, output: Output): Promise<number> {
  const { kind } = await store.revoke(id);
  if (kind === 'unknown') return unknown(output);
  output.say(kind === 'done' ? `revoked ${id}\n` : `${id} was revoked before\n`);
  return 0;
}

async function rotate(store: KeyStore, id: string, graceMs: number, output: Output): Promise<number> {
  const rotated = await store.rotate(id, graceMs);
  if (rotated.kind === 'done') return show(rotated, `rotated ${id} to`, output);
  if (rotated.kind === 'unknown') return unknown(output);
  const instead =
    rotated.kind === 'rotated' ? 'rotate the key that took its place, or create a new one' : 'create a new key';
  output.say(`ra-sidecar: ${id} is ${rotated.kind}: ${instead}\n`);
  return 1;
}

/** What was given may be a key by mistake, so it is not repeated. */
function unknown(output: Output): number {
  output.say('ra-sidecar: there is no key with this id; `ra-sidecar keys list` shows them\n');
  return 1;
}

function listed(file: KeyFile, json: boolean): string {
  const now = Date.now();
  const keys = file.keys.map((key) => described(key, file, now));
  if (json) return `${JSON.stringify(keys, null, 2)}\n`;
  const rows = keys.map(({ id, account = '-', state, created, expires = 'never', entitlements }) => {
    const where = Object.entries(entitlements).map(([name, { models }]) => `${name}:${String(models)}`);
    return [id, account, state, created, expires, where.join(' ')];
  });
  const table = [['ID', 'ACCOUNT', 'STATE', 'CREATED', 'EXPIRES', 'MODELS'], ...rows];
  const widths = (table[0] ?? []).map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  return table
    .map(
      (row) =>
        `${row
          .map((cell, i) => cell.padEnd(widths[i] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

type Described = Omit<StoredKey, 'hash'> & { readonly hash: undefined; readonly state: string };

/** All of a key but its hash. */
function described(key: StoredKey, file: KeyFile, now: number): Described {
  const { limits } = key;
  // JSON leaves out what is undefined.
  return { ...key, ...(limits && { limits: limitsOf(limits) }), hash: undefined, state: stateOf(key, file, now) };
}

/** What a caller would be told, in the order of the checks. */
function stateOf({ revoked, expires, account }: StoredKey, file: KeyFile, now: number): string {
  if (revoked !== undefined) return 'revoked';
  if (expires !== undefined && Date.parse(expires) <= now) return 'expired';
  if (account === undefined) return 'unattributed';
  return isFrozen(file, account) ? 'frozen' : 'good';
}
