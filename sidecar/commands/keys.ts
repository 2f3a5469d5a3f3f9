/**
 * `ra-sidecar keys`: creates, lists, revokes and rotates the keys of the keys file. A running sidecar notices the
 * change. A new key is written to stdout only; messages go to stderr.
 */
import { readKeyFile } from '../access/key-file.js';
import { isFrozen } from '../access/key-file-schema.js';
import { limitsOf, type KeyFile, type StoredKey } from '../access/key-file-schema.js';
import { KeyStore, type NewKey } from '../access/keys.js';
import type { Config } from '../config/config.js';
import {} from './model-files.js';
import { EXIT, parsed, UsageError, type Output } from './command.js';
import { orUsage } from './help.js';
import { durationMs, propertiesOf, type NewKeyProperties } from './key-options.js';
import { columns } from './layout.js';
import { COMMANDS } from './command-table.js';

/** The settings that this command needs. */
type Settings = Pick<Config, 'keys' | 'environment' | 'models'>;

/** Runs `keys` with these arguments. Resolves with the exit code: 0, 1 not done, 2 a wrong command line. */
export function keys(config: Settings, args: readonly string[], output: Output): Promise<number> {
  return orUsage(`keys ${args[0] ?? ''}`, output, () => run(config, args, output));
}

const SPECS = COMMANDS.keys.commands;

async function run(config: Settings, [action, ...rest]: readonly string[], output: Output): Promise<number> {
  const store = new KeyStore(config.keys.file);
  switch (action) {
    case 'create': {
      const { values } = parsed(SPECS.create, rest);
      const properties = propertiesOf(values, config.environment, Date.now());
      const code = show(await store.create(properties), 'created', output);
      warnOfModels(properties, config, output);
      return code;
    }
    case 'list': {
      const { json } = parsed(SPECS.list, rest).values;
      output.out(listed(await readKeyFile(config.keys.file), json === true));
      return EXIT.done;
    }
    case 'revoke':
      return revoke(store, parsed(SPECS.revoke, rest).operands[0] ?? '', output);
    case 'rotate': {
      const { values, operands } = parsed(SPECS.rotate, rest);
      return rotate(store, operands[0] ?? '', durationMs('--grace', values.grace ?? '0m'), output);
    }
    default:
      throw new UsageError(action === undefined ? 'keys: a command is required' : 'keys: unknown command');
  }
}

function show({ key, id }: NewKey, what: string, output: Output): number {
  output.out(`${key}\n`);
  output.err(`${what} ${id}; the key is shown this once, only its hash is stored\n`);
  return 0;
}

/**
 * Warns about models that the configuration does not have. The key is created anyway: it may be for another sidecar, or
 * for a model that is added later. The given ids are not repeated, since they may be a key by mistake.
 */
function warnOfModels({ entitlements }: NewKeyProperties, { models }: Settings, output: Output): void {
  const configured = models.map(({ id }) => id);
  const missing = Object.values(entitlements).reduce(
    (sum, { models: named }) => sum + (named === 'all' ? 0 : named.filter((id) => !configured.includes(id)).length),
    0,
  );
  if (missing === 0) return;
  const which = missing === 1 ? 'one model' : `${missing} models`;
  output.err(`warning: --models names ${which} that this configuration does not have: ${configured.join(', ')}\n`);
}

async function revoke(store: KeyStore, id: string, output: Output): Promise<number> {
  const { kind } = await store.revoke(id);
  if (kind === 'unknown') return unknown(output);
  output.err(kind === 'done' ? `revoked ${id}\n` : `${id} was revoked before\n`);
  return 0;
}

async function rotate(store: KeyStore, id: string, graceMs: number, output: Output): Promise<number> {
  const rotated = await store.rotate(id, graceMs);
  if (rotated.kind === 'done') return show(rotated, `rotated ${id} to`, output);
  if (rotated.kind === 'unknown') return unknown(output);
  const instead =
    rotated.kind === 'rotated' ? 'rotate the key that took its place, or create a new one' : 'create a new key';
  output.err(`ra-sidecar: ${id} is ${rotated.kind}: ${instead}\n`);
  return 1;
}

/** The given id is not repeated, since it may be a key by mistake. */
function unknown(output: Output): number {
  output.err('ra-sidecar: there is no key with this id; `ra-sidecar keys list` shows them\n');
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
  return columns([['ID', 'ACCOUNT', 'STATE', 'CREATED', 'EXPIRES', 'MODELS'], ...rows]);
}

type Described = Omit<StoredKey, 'hash'> & { readonly hash: undefined; readonly state: string };

/** All of a key but its hash. */
function described(key: StoredKey, file: KeyFile, now: number): Described {
  const { limits } = key;
  // JSON leaves out what is undefined.
  return { ...key, ...(limits && { limits: limitsOf(limits) }), hash: undefined, state: stateOf(key, file, now) };
}

/** The check that a caller with this key would fail first. */
function stateOf({ revoked, expires, account }: StoredKey, file: KeyFile, now: number): string {
  if (revoked !== undefined) return 'revoked';
  if (expires !== undefined && Date.parse(expires) <= now) return 'expired';
  if (account === undefined) return 'unattributed';
  return isFrozen(file, account) ? 'frozen' : 'good';
}
