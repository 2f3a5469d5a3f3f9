/**
 * `ra-sidecar keys`: creates, lists, revokes and rotates keys, in the keys file or the store of a fleet; `ra-sidecar accounts`: what holds
 * for all keys of an account. After a change of the file the command waits until the running sidecar has it in force, which it asks over
 * the operators' listener. A new key is written to stdout only; messages go to stderr.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { audited, AuditError } from '../access/audit.js';
import type { KeysInForce } from '../access/key-identity.js';
import {
  accountOf,
  described,
  readKeyFile,
  signOfKeyFile,
  NO_KEYS,
  type Entitlement,
  type KeyFile,
  type StoredKey,
} from '../access/key-file.js';
import { KeyStore, type NewKey, type Patch } from '../access/keys.js';
import { LIMIT_GROUPS, TOKEN_LIMITS, type KeyLimits, type LimitGroup, type TokenLimits } from '../access/limits.js';
import type { Config } from '../config/config.js';
import { isEnvironment } from '../config/schema.js';
import { KEY_ROUTES } from '../contracts/requests.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, SERVICE_TIERS, type ServiceClass } from '../domain/service-class.js';
import type { Database } from '../store/database.js';
import type * as StoreKeysModule from '../store/keys.js';
import { exactTime } from '../lib/clock.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, failedWith, runOf, UsageError, type Io, type Output, type Values } from './command.js';
import { columns } from './terminal.js';
import { COMMANDS } from './command-table.js';

/** The settings that this command needs, and where they come from. */
type Settings = Pick<Config, 'dataDir' | 'keys' | 'environment' | 'models' | 'operators' | 'store'> & {
  readonly source: string;
};

type KeysIo = Output & Pick<Io, 'clock'>;

/** Runs `keys` with these arguments. Resolves with the exit code, and rejects if the keys file is invalid. */
export function keys(config: Settings, args: readonly string[], output: KeysIo): Promise<number> {
  return runOf('keys', COMMANDS.keys, args, {
    create: async ({ values }) => {
      const properties = propertiesOf(values, config.environment, Date.now());
      const created = await noted(config, 'create', output, (store) => store.create(properties));
      const code = show(created, 'created', output);
      warnOfModels(properties, config, output);
      await warnOfOtherKeys(config, output);
      return code;
    },
    list: async ({ values }) => {
      output.out(listed(await keysOf(config), values.json === true));
      return EXIT.done;
    },
    import: ({ operands: [path = config.keys.file] }) => importFile(config, path, output),
    revoke: ({ operands: [id = ''] }) => revoke(config, id, output),
    rotate: ({ values, operands: [id = ''] }) =>
      rotate(config, id, durationMs('--grace', values.grace ?? '0m'), output),
  });
}

/** All keys, wherever they are kept. */
async function keysOf({ keys: { source, file }, store }: Settings): Promise<KeyFile> {
  return await (source === 'store' ? inStore(store, (database, of) => of.readStoreKeys(database)) : readKeyFile(file));
}

/** Runs `use` with the store, and with what reads and changes it; loaded here, since few sidecars share one. */
async function inStore<T>(
  settings: Config['store'],
  use: (database: Database, of: typeof StoreKeysModule, operator: string) => Promise<T>,
): Promise<T> {
  const [{ operatorHere, withDatabase }, of] = await Promise.all([import('./store.js'), import('../store/keys.js')]);
  return await withDatabase(settings, (database) => use(database, of, operatorHere()));
}

async function importFile({ store }: Settings, path: string, output: Output): Promise<number> {
  const file = await readKeyFile(path);
  if (file === NO_KEYS) throw new Error(`there is no keys file ${path}`);
  const added = await inStore(store, (database, of, operator) => of.importKeys(database, file, operator));
  output.err(
    `imported ${added.keys} of ${file.keys.length} keys, and the properties of ${added.accounts} accounts; what the store had before, and development keys, are left out\n`,
  );
  return EXIT.done;
}

/**
 * Makes a change with its line in the audit, as over HTTP. A revocation is made also where the line cannot be written, with a warning: a
 * full disk must not keep a stolen key in force.
 */
async function noted<T>(
  { dataDir, keys: { source, file }, store: settings }: Settings,
  action: string,
  output: Output,
  change: (store: KeyStore) => Promise<T>,
): Promise<T> {
  if (source === 'store') {
    return await inStore(settings, (database, { storeKeys }, operator) =>
      change(new KeyStore(storeKeys(database, operator, action))),
    );
  }
  const operator = `uid:${process.getuid?.() ?? ''}`;
  return await audited(join(dataDir, 'audit.jsonl'), { operator, action }, (note) =>
    change(
      new KeyStore(file, {
        note: async (what) => {
          try {
            await note(what);
          } catch (error) {
            if (action !== 'revoke' || !(error instanceof AuditError)) throw error;
            output.err(`warning: the revocation is not in the audit: ${error.message}\n`);
          }
        },
      }),
    ),
  );
}

function show({ key, id }: NewKey, what: string, output: Output): number {
  output.out(`${key}\n`);
  output.err(`${what} ${id}; the key is shown this once, only its hash is stored\n`);
  return 0;
}

/**
 * Warns about models that the configuration does not have. The key is created anyway: it may be for another sidecar, or for a model that is
 * added later. The given ids are not repeated, since they may be a key by mistake.
 */
function warnOfModels({ entitlements }: NewKeyProperties, { models, source }: Settings, output: Output): void {
  const configured = models.map(({ id }) => id);
  const missing = Object.values(entitlements).reduce(
    (sum, { models: named }) => sum + (named === 'all' ? 0 : named.filter((id) => !configured.includes(id)).length),
    0,
  );
  if (missing === 0) return;
  const which = missing === 1 ? 'one model that is' : `${missing} models that are`;
  output.err(
    `warning: --models names ${which} not configured. Configured are: ${configured.join(', ')}. The configuration is: ${source}\n`,
  );
}

async function revoke(config: Settings, id: string, output: KeysIo): Promise<number> {
  const { kind } = await noted(config, 'revoke', output, (store) => store.revoke(id));
  if (kind === 'unknown') return unknown(output);
  output.err(kind === 'done' ? `revoked ${id}\n` : `${id} was revoked before\n`);
  await reportRejected(config, output);
  return 0;
}

async function rotate(config: Settings, id: string, graceMs: number, output: KeysIo): Promise<number> {
  const rotated = await noted(config, 'rotate', output, (store) => store.rotate(id, graceMs));
  if (rotated.kind === 'done') {
    const code = show(rotated, `rotated ${id} to`, output);
    await (graceMs > 0 ? warnOfOtherKeys(config, output) : reportRejected(config, output));
    return code;
  }
  if (rotated.kind === 'unknown') return unknown(output);
  const instead =
    rotated.kind === 'rotated' ? 'rotate the key that took its place, or create a new one' : 'create a new key';
  return failedWith(output.err, `${id} is ${rotated.kind}: ${instead}`);
}

/** Says that the old key is rejected by now, or that this could not be seen and when it will be. */
async function reportRejected(config: Settings, output: KeysIo): Promise<void> {
  if (config.keys.source === 'store') {
    const { pollMs, staleMs } = config.store;
    const cut = staleMs === 0 ? 'until it does' : `for at most ${staleMs / 1000} s (store.staleMs)`;
    output.err(
      `each sidecar that reaches the store rejects the key within a second, or ${pollMs / 1000} s (store.pollMs); one that does not accepts it ${cut}\n`,
    );
    return;
  }
  const { file, pollMs } = config.keys;
  const others = `sidecar that uses ${file} reads it within ${pollMs / 1000} s (keys.pollMs)`;
  const change = await untilInForce(config, output);
  output.err(
    change.kind === 'in force'
      ? `the sidecar at ${change.at} rejects the key from now on; any other ${others}\n`
      : `warning: whether the key is rejected already was not seen, since ${change.why}; a ${others}\n`,
  );
}

/** Warns if the running sidecar does not use the new key. Without a sidecar there is nothing to warn of. */
async function warnOfOtherKeys(config: Settings, output: KeysIo): Promise<void> {
  if (config.keys.source === 'store') return;
  const change = await untilInForce(config, output);
  if (change.kind === 'not in force') output.err(`warning: the new key does not work yet: ${change.why}\n`);
}

/** The longest wait for the running sidecar, ms. It reads the longest file within this time, unless the host is very busy. */
const IN_FORCE_MS = 5000;

/** Time between two questions, ms: a sidecar looks at its keys file at most ten times a second. */
const ASK_EVERY_MS = 50;

type Change =
  | { readonly kind: 'in force'; readonly at: string }
  /** The sidecar of this configuration has other keys in force. `why`: half a sentence. */
  | { readonly kind: 'not in force'; readonly why: string }
  /** No sidecar said what it has in force. */
  | { readonly kind: 'unseen'; readonly why: string };

/** Waits, for {@link IN_FORCE_MS} at most, until the sidecar of this configuration has the present keys file in force. */
async function untilInForce({ keys: { file }, operators }: Settings, { clock }: KeysIo): Promise<Change> {
  if (operators.port === 0) return { kind: 'unseen', why: 'operators.port is 0, which names no sidecar' };
  const until = clock.now() + IN_FORCE_MS;
  for (;;) {
    const sign = await signOfKeyFile(file);
    const asked = await askSidecar<KeysInForce>(operators, {
      method: 'GET',
      // Without the keys themselves.
      path: '/keys?limit=0',
      silenceMs: IN_FORCE_MS,
    });
    if (asked.kind === 'none') return { kind: 'unseen', why: asked.why };
    const { at, body } = asked;
    if (body.sha256 === undefined)
      return {
        kind: 'unseen',
        why: `what answers at ${at} does not say (${body.error?.message ?? 'no known answer'})`,
      };
    if (body.sha256 === sign) return { kind: 'in force', at };
    if (clock.now() >= until) {
      const why = body.problem ?? (body.file === file ? 'it has not read the file yet' : `it uses ${body.file ?? ''}`);
      return { kind: 'not in force', why: `the sidecar at ${at} has other keys in force (${why})` };
    }
    await sleep(ASK_EVERY_MS);
  }
}

/** The given id is not repeated, since it may be a key by mistake. */
function unknown({ err }: Output): number {
  return failedWith(err, 'there is no key with this id; `ra-sidecar keys list` shows them');
}

function listed(file: KeyFile, json: boolean): string {
  const now = Date.now();
  const keys = file.keys.map((key) => described(key, file, now));
  if (json) return `${JSON.stringify(keys, null, 2)}\n`;
  const rows = keys.map(({ id, account = '-', state, created, expires = 'never', entitlements, ...key }) => {
    const by = (text: (entitlement: Entitlement) => string | undefined, none: string): string =>
      Object.entries(entitlements)
        .flatMap(([environment, entitlement]) => {
          const value = text(entitlement);
          return value === undefined ? [] : [`${environment}:${value}`];
        })
        .join(' ') || none;
    return [
      ...[id, account, state, created, expires, classOf(key), limitsText(key.limits)],
      by(({ models }) => String(models), 'none'),
      by(({ routes }) => routes?.join(), 'all'),
      by(({ cohort }) => cohort, '-'),
      by(tokensText, '-'),
      tokensText(key.accountTokens ?? {}) ?? '-',
    ];
  });
  const head = 'ID ACCOUNT STATE CREATED EXPIRES CLASS LIMITS MODELS ROUTES COHORT TOKENS ACCOUNT-TOKENS';
  return columns([head.split(' '), ...rows]);
}

/** A service class; older files have its weight. */
function classOf({ class: name, weight }: Pick<StoredKey, 'class' | 'weight'>): ServiceClass {
  return name ?? SERVICE_CLASSES.find((each) => CLASS_WEIGHTS[each] === weight) ?? 'standard';
}

/** As `keys create --limits` takes them; `default`: those of the configuration. */
function limitsText(limits: StoredKey['limits'] = {}): string {
  const groups = Object.entries(limits);
  return groups.map(([group, { inFlight, perMinute }]) => `${group}=${inFlight}/${perMinute}`).join() || 'default';
}

/** Quotas, as in `minute=10000,month=1000000`; undefined if there are none. */
function tokensText(limits: TokenLimits): string | undefined {
  const texts = QUOTAS.flatMap(({ field, time }) => (limits[field] === undefined ? [] : [`${time}=${limits[field]}`]));
  return texts.length > 0 ? texts.join() : undefined;
}

/** Each quota with its time, which is also in its option: `--tokens-per-day`. */
const QUOTAS = TOKEN_LIMITS.map((field) => ({
  field,
  time: field.slice('tokensPer'.length).toLowerCase() as 'minute' | 'day' | 'month',
}));

type CreateOptions = Values<typeof COMMANDS.keys.commands.create.options>;

const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const;

/** The longest life of a key, ms; more is a mistake. */
const MAX_MS = 3650 * UNIT_MS.d;

type NewKeyProperties = Omit<StoredKey, 'id' | 'hash' | 'created'>;

/** A key's properties. `now`: epoch ms. */
export function propertiesOf(options: CreateOptions, environment: string, now: number): NewKeyProperties {
  const { account, models = 'all', routes, cohort, expires, limits } = options;
  if (account === undefined || account === '') throw new UsageError('--account is required');
  if (options.environment !== undefined && !isEnvironment(options.environment))
    throw new UsageError('--environment must be lower-case letters, digits, - and _, as in the configuration');
  const quotas: Partial<Record<keyof TokenLimits, number>> = {};
  for (const { field, time } of QUOTAS) {
    const tokens = options[`tokens-per-${time}`];
    if (tokens !== undefined) quotas[field] = countOf(`--tokens-per-${time}`, tokens);
  }
  const entitlement = {
    models: models === 'all' ? ('all' as const) : listOf('--models', models),
    ...(routes !== undefined && {
      routes: listOf('--routes', routes).map((name) => oneOf('--routes', name, KEY_ROUTES)),
    }),
    ...(cohort !== undefined && { cohort }),
    ...(options.tiers !== undefined && {
      tiers: listOf('--tiers', options.tiers).map((name) => oneOf('--tiers', name, SERVICE_TIERS)),
    }),
    ...(options.usage !== undefined && { usage: oneOf('--usage', options.usage, ['account'] as const) }),
    ...quotas,
  };
  return {
    account,
    ...(expires !== undefined && { expires: endOf(expires, now) }),
    ...(options.class !== undefined && { class: oneOf('--class', options.class, SERVICE_CLASSES) }),
    ...(limits !== undefined && { limits: limitsFrom(limits) }),
    entitlements: { [options.environment ?? environment]: entitlement },
  };
}

/** `30d`, `12h`, `90m`, `45s` in ms. `others`: what else the option takes. */
function durationMs(option: string, text: string, others = ''): number {
  const [, number, unit] = /^(\d{1,9})([dhms])$/.exec(text) ?? [];
  const ms = Number(number) * UNIT_MS[(unit ?? 's') as keyof typeof UNIT_MS];
  if (!(ms <= MAX_MS))
    throw new UsageError(`${option} must be a time such as 30d, 12h or 90m, of ten years at most${others}`);
  return ms;
}

function endOf(text: string, now: number): string {
  if (!/^\d{4}-/.test(text)) {
    const ms = durationMs('--expires', text, ', or 2027-01-31T00:00:00Z');
    if (ms === 0) throw new UsageError('--expires must be after now');
    return new Date(now + ms).toISOString();
  }
  // A time needs its zone: without, it would mean different times on different machines.
  const at = /^[\d-]+T[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(text) ? exactTime(text) : NaN;
  if (Number.isNaN(at)) throw new UsageError('--expires must be a time such as 2027-01-31T00:00:00Z, or 30d');
  if (at <= now) throw new UsageError('--expires is in the past');
  return new Date(at).toISOString();
}

/** `decisions=8/100,chat=0/60`. */
function limitsFrom(text: string): KeyLimits {
  const limits: Partial<Record<LimitGroup, { inFlight: number; perMinute: number }>> = {};
  for (const part of listOf('--limits', text)) {
    const [, name = '', inFlight, perMinute] = /^(\w+)=(\d{1,6})\/(\d{1,6})$/.exec(part) ?? [];
    if (inFlight === undefined) throw new UsageError('--limits must be as in chat=4/60: in flight, and a minute');
    limits[oneOf('--limits', name, LIMIT_GROUPS)] = { inFlight: Number(inFlight), perMinute: Number(perMinute) };
  }
  return limits;
}

function listOf(option: string, text: string): string[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.includes('')) throw new UsageError(`${option} must be comma-separated names`);
  return [...new Set(items)];
}

function oneOf<T extends string>(option: string, text: string, known: readonly T[]): T {
  const found = known.find((name) => name === text);
  if (found === undefined) throw new UsageError(`${option} takes ${known.join(', ')}`);
  return found;
}

function countOf(option: string, text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new UsageError(`${option} must be a whole number above 0`);
  return Number(text);
}

/** Runs `accounts` with these arguments. Resolves with the exit code, and rejects as `keys`. */
export function accounts(config: Settings, args: readonly string[], output: KeysIo): Promise<number> {
  return runOf('accounts', COMMANDS.accounts, args, {
    list: ({ values }) => listAccounts(config, values.json === true, output),
    freeze: ({ operands: [name = ''] }) => changeAccount(config, 'freeze', name, { frozen: true }, output),
    unfreeze: ({ operands: [name = ''] }) => changeAccount(config, 'unfreeze', name, { frozen: null }, output),
    set: async ({ values, operands: [name = ''] }) => {
      const quotas = QUOTAS.flatMap(({ field, time }) => {
        const given = values[`tokens-per-${time}`];
        if (given === undefined) return [];
        return [[field, given === 'none' ? null : countOf(`--tokens-per-${time}`, given)] as const];
      });
      if (quotas.length === 0) throw new UsageError('accounts set: a quota is needed');
      return await changeAccount(config, 'change-account', name, Object.fromEntries(quotas), output);
    },
  });
}

async function listAccounts(config: Settings, json: boolean, output: KeysIo): Promise<number> {
  const file = await keysOf(config);
  const counts = new Map(Object.keys(file.accounts ?? {}).map((account) => [account, 0]));
  for (const { account = '', revoked } of file.keys)
    counts.set(account, (counts.get(account) ?? 0) + Number(revoked === undefined));
  counts.delete('');
  const found = Array.from(counts, ([account, keys]) => {
    const { frozen = false, ...quotas } = accountOf(file, account) ?? {};
    return { account, frozen, keys, quotas };
  });
  const cells = found.map(({ account, frozen, keys, quotas }) => {
    return [account, frozen ? 'frozen' : 'open', `${keys}`, tokensText(quotas) ?? '-'];
  });
  output.out(json ? `${JSON.stringify(found)}\n` : columns([['ACCOUNT', 'STATE', 'KEYS', 'TOKENS'], ...cells]));
  return EXIT.done;
}

async function changeAccount(
  config: Settings,
  action: string,
  name: string,
  patch: Patch,
  output: KeysIo,
): Promise<number> {
  const done = await noted(config, action, output, (store) => store.changeAccount(name, patch));
  if (done.kind === 'account') {
    output.err(`changed ${name}\n`);
    return EXIT.done;
  }
  const none = 'there is no such account; `ra-sidecar accounts list` shows them';
  return failedWith(output.err, done.kind === 'unknown' ? none : `${done.field} ${done.why}`);
}
