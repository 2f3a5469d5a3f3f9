/**
 * `ra-sidecar keys`: creates, lists, revokes and rotates the keys of the keys file. After a change the command waits
 * until the running sidecar has it in force, which it asks over the operators' listener. A new key is written to stdout
 * only; messages go to stderr.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { KeysInForce } from '../access/key-file-watch.js';
import { readKeyFile, signOfKeyFile } from '../access/key-file.js';
import { limitsOf, stateOfKey, type Entitlement, type KeyFile, type StoredKey } from '../access/key-file-schema.js';
import { KeyStore, type NewKey } from '../access/keys.js';
import type { Config } from '../config/config.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, parsed, UsageError, type Output } from './command.js';
import { orUsage } from './help.js';
import type { Io } from './io.js';
import { durationMs, propertiesOf, type NewKeyProperties } from './key-options.js';
import { columns } from './layout.js';
import { COMMANDS } from './command-table.js';

/** The settings that this command needs, and where they come from. */
type Settings = Pick<Config, 'keys' | 'environment' | 'models' | 'operators'> & { readonly source: string };

type KeysIo = Output & Pick<Io, 'clock'>;

/** Runs `keys` with these arguments. Resolves with the exit code: 0, 1 not done, 2 a wrong command line. */
export function keys(config: Settings, args: readonly string[], output: KeysIo): Promise<number> {
  return orUsage(`keys ${args[0] ?? ''}`, output, () => run(config, args, output));
}

const SPECS = COMMANDS.keys.commands;

async function run(config: Settings, [action, ...rest]: readonly string[], output: KeysIo): Promise<number> {
  const store = new KeyStore(config.keys.file);
  switch (action) {
    case 'create': {
      const { values } = parsed(SPECS.create, rest);
      const properties = propertiesOf(values, config.environment, Date.now());
      const code = show(await store.create(properties), 'created', output);
      warnOfModels(properties, config, output);
      await warnOfOtherKeys(config, output);
      return code;
    }
    case 'list': {
      const { json } = parsed(SPECS.list, rest).values;
      output.out(listed(await readKeyFile(config.keys.file), json === true));
      return EXIT.done;
    }
    case 'revoke':
      return revoke(store, config, parsed(SPECS.revoke, rest).operands[0] ?? '', output);
    case 'rotate': {
      const { values, operands } = parsed(SPECS.rotate, rest);
      return rotate(store, config, operands[0] ?? '', durationMs('--grace', values.grace ?? '0m'), output);
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

async function revoke(store: KeyStore, config: Settings, id: string, output: KeysIo): Promise<number> {
  const { kind } = await store.revoke(id);
  if (kind === 'unknown') return unknown(output);
  output.err(kind === 'done' ? `revoked ${id}\n` : `${id} was revoked before\n`);
  await reportRejected(config, output);
  return 0;
}

async function rotate(store: KeyStore, config: Settings, id: string, graceMs: number, output: KeysIo): Promise<number> {
  const rotated = await store.rotate(id, graceMs);
  if (rotated.kind === 'done') {
    const code = show(rotated, `rotated ${id} to`, output);
    await (graceMs > 0 ? warnOfOtherKeys(config, output) : reportRejected(config, output));
    return code;
  }
  if (rotated.kind === 'unknown') return unknown(output);
  const instead =
    rotated.kind === 'rotated' ? 'rotate the key that took its place, or create a new one' : 'create a new key';
  output.err(`ra-sidecar: ${id} is ${rotated.kind}: ${instead}\n`);
  return 1;
}

/** Says that the old key is rejected by now, or that this could not be seen and when it will be. */
async function reportRejected(config: Settings, output: KeysIo): Promise<void> {
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

/**
 * Waits, for {@link IN_FORCE_MS} at most, until the sidecar of this configuration has the keys file in force as it is
 * now, so with the change that this command made before.
 */
async function untilInForce({ keys: { file }, operators }: Settings, { clock }: KeysIo): Promise<Change> {
  if (operators.port === 0) return { kind: 'unseen', why: 'operators.port is 0, which names no sidecar' };
  const until = clock.now() + IN_FORCE_MS;
  for (;;) {
    const sign = await signOfKeyFile(file);
    const asked = await askSidecar<KeysInForce>(operators, {
      method: 'GET',
      path: '/keys',
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
function unknown(output: Output): number {
  output.err('ra-sidecar: there is no key with this id; `ra-sidecar keys list` shows them\n');
  return 1;
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
      by(({ tokensPerDay }) => tokensPerDay?.toString(), '-'),
    ];
  });
  const head = 'ID ACCOUNT STATE CREATED EXPIRES CLASS LIMITS MODELS ROUTES COHORT TOKENS/DAY';
  return columns([head.split(' '), ...rows]);
}

/** A service class; older files have its weight. */
function classOf({ class: name, weight }: Pick<StoredKey, 'class' | 'weight'>): ServiceClass {
  return name ?? SERVICE_CLASSES.find((each) => CLASS_WEIGHTS[each] === weight) ?? 'standard';
}

/** As `keys create --limits` takes them; `default`: those of the configuration. */
function limitsText(limits: StoredKey['limits']): string {
  const groups = Object.entries(limits === undefined ? {} : limitsOf(limits));
  return groups.map(([group, { inFlight, perMinute }]) => `${group}=${inFlight}/${perMinute}`).join() || 'default';
}

type Described = Omit<StoredKey, 'hash'> & { readonly hash: undefined; readonly state: string };

/** All of a key but its hash. */
function described(key: StoredKey, file: KeyFile, now: number): Described {
  const { limits } = key;
  // JSON leaves out what is undefined.
  return { ...key, ...(limits && { limits: limitsOf(limits) }), hash: undefined, state: stateOfKey(key, file, now) };
}
