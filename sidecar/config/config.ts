import { join, resolve } from 'node:path';
import { createScanner, parse, printParseErrorCode, visit, type ParseError } from 'jsonc-parser';
import { contradictions, hints } from './checks.js';
import { configSchema, type Config } from './schema.js';
import { settings, validationSchema, variableOf, type Setting, type SettingSchema } from './setting.js';
import { lineAt, REPEATED } from '../contracts/json.js';
import { compile } from '../contracts/validator.js';
import { NotRegularFile, readRegularSync } from '../lib/checked-file.js';

export type { ModelConfig } from './model-schema.js';
export type { Config } from './schema.js';

export interface LoadedConfig {
  readonly kind: 'config';
  readonly config: Config;
  /** Lines to log as warnings. */
  readonly hints: readonly string[];
  /** Where it comes from, for people: the file, or that there is none, and the variables that set something. */
  readonly source: string;
  /** Why a sidecar does not start with it, although its commands run; absent: it starts. */
  readonly unservable?: string;
}

export type Loaded =
  | LoadedConfig
  /** `line` names one invalid setting, the problem and where it was set; `lines` has all of them. They contain no value. */
  | { readonly kind: 'invalid'; readonly line: string; readonly lines: readonly string[] };

/** The keys file that a sidecar follows: that of `keys.file`, or its copy of the store's keys. */
export function keysFileOf({ keys, dataDir }: Pick<Config, 'keys' | 'dataDir'>): string {
  return keys.source === 'store' ? join(dataDir, 'fleet-keys.json') : keys.file;
}

/** The price file that it uses, in the same way; undefined: built-in prices. */
export function priceFileOf({ pricing, dataDir }: Pick<Config, 'pricing' | 'dataDir'>): string | undefined {
  return pricing.source === 'store' ? join(dataDir, 'fleet-prices.json') : pricing.file;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Names the JSON or JSONC file. Every other `RA_` variable is a setting. */
const FILE_VARIABLE = 'RA_CONFIG';

/** In the order of the documentation. */
const SETTINGS = settings(configSchema);

const check = compile<Config>(validationSchema(configSchema), {
  written: 'settings',
  useDefaults: true,
  nameUnknownFields: true,
  allProblems: true,
});

/**
 * Reads the file that `RA_CONFIG` names, if any, applies the `RA_` variables over it and validates the result. It is the only reader of
 * settings in the process's environment. Unknown keys and variables are errors like invalid values. `file`: a file to read in place of the
 * one that `RA_CONFIG` names.
 */
export function loadConfig(environment: Environment = process.env, file = environment[FILE_VARIABLE]): Loaded {
  const set = SETTINGS.filter(({ variable }) => environment[variable] !== undefined);
  const variables = SETTINGS.map(({ variable }) => variable);
  const unknownNames = unknownVariablesOf(environment).map(
    (name) =>
      `config: ${name} ${droppedVariable(name) ?? `is not a setting${suggestion(name, variables)}`} (environment)`,
  );
  const invalid = (problems: readonly string[]): Loaded => {
    const lines = [...unknownNames, ...problems.map((problem) => `config: ${problem}${origin(problem, set, file)}`)];
    return { kind: 'invalid', line: lines[0] ?? '', lines };
  };
  const read = file === undefined ? { value: {} } : readFile(file);
  if ('problem' in read) return invalid([read.problem]);
  const repeating = set.find(
    ({ schema, variable }) => schema.type === 'array' && repeatAt(environment[variable] ?? ''),
  );
  if (repeating) return invalid([`${repeating.path} ${REPEATED}`]);
  const source = sourceOf(file, set);
  for (const setting of set) {
    assign(read.value, setting.path.split('.'), fromText(setting, environment[setting.variable]));
  }

  const namesModels = 'models' in read.value;
  const checked = check(read.value);
  if (!checked.ok) return invalid((checked.all ?? [`${checked.path} ${checked.message}`]).map(withSuggestion));
  const config = checked.value;
  normalize(config, configSchema, resolve(config.dataDir));
  const broken = contradictions(config);
  if (unknownNames.length + broken.length > 0) return invalid(broken);
  const unservable = namesModels ? undefined : withoutModels(config.environment, source);
  return { kind: 'config', config: frozen(config), hints: hints(config), source, ...(unservable && { unservable }) };
}

function sourceOf(file: string | undefined, set: readonly Setting[]): string {
  const base = file === undefined ? `built-in defaults (${FILE_VARIABLE} is not set)` : resolve(file);
  return set.length === 0 ? base : `${base}, with ${set.map(({ variable }) => variable).join(', ')} of the environment`;
}

/** A service that forgot to name its configuration file would otherwise serve the embedded models, whose answers are of no use. */
function withoutModels(environment: string, source: string): string | undefined {
  if (environment === 'development') return undefined;
  return `config: models must be set where environment is ${environment}: the embedded models, which are served without it, are for development (${source})`;
}

/** Whether npm or npx started this process. */
export function isStartedByNpm(environment: Environment = process.env): boolean {
  return (environment['npm_command'] ?? '') !== '';
}

/** Whether systemd started this process and expects a readiness notification (sd_notify(3)). */
export function isNotified(environment: Environment = process.env): boolean {
  return (environment['NOTIFY_SOCKET'] ?? '') !== '';
}

/** Removes OpenTelemetry's variables from the environment, since its SDK reads them and would override settings. Returns how many. */
export function forgetOtelVariables(environment: Record<string, string | undefined> = process.env): number {
  const names = Object.keys(environment).filter((name) => name.startsWith('OTEL_'));
  for (const name of names) Reflect.deleteProperty(environment, name);
  return names.length;
}

/** Kubernetes gives pods `RA_SIDECAR_SERVICE_HOST` and the like where a Service is named `ra-sidecar`: these are no settings. */
function unknownVariablesOf(environment: Environment): string[] {
  const known = new Set(SETTINGS.map(({ variable }) => variable)).add(FILE_VARIABLE);
  const names = Object.keys(environment).filter((name) => name.startsWith('RA_') && !known.has(name));
  const services = names.flatMap((name) => /^(RA_\w+_)SERVICE_HOST$/.exec(name)?.[1] ?? []);
  const describesService = (name: string): boolean =>
    services.some((service) => name.startsWith(`${service}SERVICE_`) || name.startsWith(`${service}PORT`));
  return names.filter((name) => !describesService(name));
}

function readFile(file: string): { value: object } | { problem: string } {
  let text: string;
  try {
    text = readRegularSync(file);
  } catch (error) {
    if (error instanceof NotRegularFile) return { problem: error.message };
    return { problem: `cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}` };
  }
  const errors: ParseError[] = [];
  const value: unknown = parse(text, errors, { allowTrailingComma: true, allowEmptyContent: true });
  const [error] = errors;
  if (error) return { problem: faultOf(text, error) };
  const repeat = repeatAt(text);
  if (repeat !== undefined) return { problem: `${REPEATED}, on line ${lineAt(text, repeat)}` };
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? { value }
    : { problem: 'must contain one object' };
}

/** The parser's errors in words, by their names. */
const FAULTS: Readonly<Record<string, string>> = {
  InvalidSymbol: 'a word that is no JSON value, or a name without double quotes',
  PropertyNameExpected: 'a name in double quotes is missing',
  ValueExpected: 'a value is missing',
  ColonExpected: 'a colon is missing',
  CommaExpected: 'a comma is missing',
  CloseBraceExpected: 'a closing } is missing',
  CloseBracketExpected: 'a closing ] is missing',
  EndOfFileExpected: 'something follows the end of the object',
  UnexpectedEndOfComment: 'a comment without its end',
  UnexpectedEndOfString: 'a text without its closing quote',
};

/** The fault with its line and column, both from 1. A missing token is reported where the token before it ends. */
function faultOf(text: string, { error, offset }: ParseError): string {
  const what = FAULTS[printParseErrorCode(error)] ?? 'a syntax error';
  const at = what.endsWith('is missing') ? endBefore(text, offset) : offset;
  const column = at - text.lastIndexOf('\n', at - 1);
  return `is not JSON: ${what} (line ${lineAt(text, at)}, column ${column})`;
}

/** The end of the last token, comments not counted, that begins before `offset`. */
function endBefore(text: string, offset: number): number {
  const scanner = createScanner(text, true);
  let end = 0;
  while (end < offset) {
    scanner.scan();
    if (scanner.getTokenLength() === 0 || scanner.getTokenOffset() >= offset) break;
    end = scanner.getTokenOffset() + scanner.getTokenLength();
  }
  return end;
}

/** `; did you mean X?` with the known name that takes the fewest changes, at most a third of its letters. */
function suggestion(name: string, known: readonly string[]): string {
  const ranked = known.map((each) => ({ each, changes: changesBetween(name.toLowerCase(), each.toLowerCase()) }));
  const [best] = ranked.sort((a, b) => a.changes - b.changes);
  return best && best.changes <= best.each.length / 3 ? `; did you mean ${best.each}?` : '';
}

/** Levenshtein's distance: letters to insert, remove or replace. */
function changesBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** What is said of a setting that became a constant: there was no value that an operator could have chosen better. */
const FIXED = 'was dropped, its value is fixed: remove it';

/** What is said of settings that earlier versions had, by their paths. */
const DROPPED: Readonly<Record<string, string>> = {
  'usage.groupMs': FIXED,
  'usage.groupRecords': FIXED,
  'usage.probeMs': FIXED,
  'credit.snapshotMs': FIXED,
  'credit.snapshotCloses': FIXED,
  'delivery.nats.window': FIXED,
  'engine.fileSilenceMs': FIXED,
  'engine.heartbeatMs': FIXED,
  'stream.intervalMs': 'was dropped, pieces of a stream are no longer joined: remove it',
  'telemetry.otlp.batchMs': FIXED,
  'telemetry.otlp.batchRequests': FIXED,
  'delivery.kafka':
    'was dropped: set delivery.url or delivery.nats to a service that writes the events to Kafka (docs/usage.md#kafka)',
};

/** What is said of a variable for a dropped setting, or for one in a dropped section. */
function droppedVariable(name: string): string | undefined {
  return Object.entries(DROPPED).find(([path]) => `${name}_`.startsWith(`${variableOf(path)}_`))?.[1];
}

/** What follows the path in the problem of an unknown field. */
const UNKNOWN = ' is not a known field';

/** The problem with a suggestion after an unknown field: any setting, or for a field of a list's item one of that item's fields. */
function withSuggestion(problem: string): string {
  const end = problem.indexOf(UNKNOWN);
  if (end < 0) return problem;
  const path = problem.slice(0, end);
  const dropped = DROPPED[path];
  if (dropped !== undefined) return `${path} ${dropped}`;
  const at = path.lastIndexOf('.') + 1;
  const [, beside = ''] = /; known are ([^;]*)$/.exec(problem) ?? [];
  const names = beside.split(', ').map((name) => path.slice(0, at) + name);
  const all = path.includes('[') ? names : [...names, ...SETTINGS.map((setting) => setting.path)];
  return problem.slice(0, end + UNKNOWN.length) + suggestion(path, all) + problem.slice(end + UNKNOWN.length);
}

/** The offset of the first name that its object already has; the parser would silently take the last value. */
function repeatAt(text: string): number | undefined {
  const open: Set<string>[] = [];
  let found: number | undefined;
  visit(text, {
    onObjectBegin: () => void open.push(new Set()),
    onObjectProperty: (name, offset) => {
      if (open.at(-1)?.has(name)) found ??= offset;
      open.at(-1)?.add(name);
    },
    onObjectEnd: () => void open.pop(),
  });
  return found;
}

/** Lists are parsed as JSON, numbers as decimal, switches as true or false; other text is left for the schema to reject. */
function fromText({ schema }: Setting, text = ''): unknown {
  if (schema.type === 'integer') return /^-?\d{1,16}$/.test(text) ? Number(text) : text;
  if (schema.type === 'boolean') return text === 'true' || (text === 'false' ? false : text);
  if (schema.type !== 'array') return text;
  const errors: ParseError[] = [];
  const value: unknown = parse(text, errors);
  return errors.length === 0 ? value : text;
}

function assign(into: object, [name = '', ...rest]: string[], value: unknown): void {
  const record = into as Record<string, unknown>;
  if (rest.length === 0) {
    record[name] = value;
    return;
  }
  if (!(name in record)) record[name] = {};
  const section = record[name];
  // Anything but an object here is an error of the file, which the schema reports.
  if (typeof section === 'object' && section !== null) assign(section, rest, value);
}

/** Where the setting that `problem` starts with was set. */
function origin(problem: string, set: readonly Setting[], file: string | undefined): string {
  const inVariable = set.find(({ path }) => problem.startsWith(path) && /^[ .[]/.test(problem.slice(path.length)));
  if (inVariable) return ` (environment variable ${inVariable.variable})`;
  return file === undefined ? '' : ` (file ${file})`;
}

/** Makes paths of a valid section absolute, and takes the brackets off IPv6 addresses, which sockets reject. Changes the section. */
function normalize(section: object, { properties = {} }: SettingSchema, dataDir: string): void {
  const values = section as Record<string, unknown>;
  for (const [name, schema] of Object.entries(properties)) {
    const value = values[name];
    const { form, word, inDataDir, items } = schema;
    if (schema.properties && value !== undefined) normalize(value as object, schema, dataDir);
    else if (items?.properties && Array.isArray(value))
      for (const item of value) normalize(item as object, items, dataDir);
    else if (form === 'path' && value === undefined && inDataDir !== undefined) values[name] = join(dataDir, inDataDir);
    else if (form === 'path' && value !== undefined && value !== word) values[name] = resolve(value as string);
    else if (form === 'host') values[name] = /^\[(.*:.*)\]$/.exec(value as string)?.[1] ?? value;
  }
}

function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}
