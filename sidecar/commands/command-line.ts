/**
 * The command line without its process: selects the command, loads its configuration and returns the exit code. command-table.ts describes
 * each command. Commands are loaded when they run: `doctor` must work, and report the cause, even if `serve` cannot be loaded.
 */
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { loadConfig, type LoadedConfig, type Config } from '../config/config.js';
import { VERSION } from '../lib/version.js';
import { EXIT, parsed, UsageError, type Io, type Output, type Command, type Group } from './command.js';
import { COMMANDS, isGroup } from './command-table.js';

type Args = readonly string[];

/** Runs with a validated configuration. */
type Configured = (loaded: LoadedConfig, args: Args, caller: CommandCaller) => Promise<number>;

/** What the process that runs a command passes to it. */
export interface CommandCaller extends Io {
  /** Where `usage` streams its result: stdout. */
  readonly stdout: Writable;
  /** Runs the sidecar until it ends; it uses the process's signals. */
  readonly serve: (loaded: LoadedConfig) => Promise<number>;
}

const CONFIGURED: Readonly<Record<string, Configured>> = {
  serve: runServe,
  keys: async ({ config, source }, args, io) => (await import('./keys.js')).keys({ ...config, source }, args, io),
  accounts: async ({ config, source }, args, io) =>
    (await import('./keys.js')).accounts({ ...config, source }, args, io),
  usage: async ({ config }, args, { stdout, err: say }) =>
    (await import('./usage.js')).usage(config, args, { out: stdout, err: say }),
  store: async ({ config }, args, io) => (await import('./store.js')).store(config, args, io),
  replicas: async ({ config }, args, io) => (await import('./store.js')).replicas(config, args, io),
  credit: async ({ config }, args, io) => (await import('./credit.js')).credit(config, args, io),
  prices: async ({ config }, args, io) => (await import('./store.js')).prices(config, args, io),
  models: async ({ config }, args, io) => (await import('./models.js')).models(config, args, io),
  batches: async ({ config }, args, io) => (await import('./batches.js')).batches(config, args, io),
  bench: async ({ config }, args, io) => (await import('./bench.js')).bench(config, args, io),
  doctor: async (loaded, args, io) => (await import('./doctor.js')).doctor(loaded, args, io),
};

/** Runs without one. */
const BARE: Readonly<Record<string, (args: Args, io: Io) => Promise<number>>> = { 'check-config': checkConfig };

/** Runs the command that `args` name. Resolves with the exit code and never rejects. */
export async function runCommand(args: Args, caller: CommandCaller): Promise<number> {
  const { out, err: say } = caller;
  const [name = '', ...rest] = args;
  if (asksForHelp(args)) {
    out(helpOf(args.slice(0, 2).join(' ')));
    return EXIT.done;
  }
  if (name === '--version') {
    out(`${NAME} ${VERSION}\n`);
    return EXIT.done;
  }
  try {
    if (!Object.hasOwn(COMMANDS, name)) throw new UsageError(name === '' ? 'a command is required' : 'unknown command');
    return await (BARE[name]?.(rest, caller) ?? runConfigured(name, rest, caller));
  } catch (error) {
    const line = `${NAME}: ${error instanceof Error ? error.message : 'failed'}\n`;
    const isUsage = error instanceof UsageError;
    say(isUsage ? `${line}\n${helpOf(args.slice(0, 2).join(' '))}` : line);
    return isUsage ? EXIT.usage : EXIT.failed;
  }
}

/** Options end at `--`. */
function asksForHelp(args: Args): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).some((argument) => argument === '--help' || argument === '-h');
}

async function runConfigured(name: string, args: Args, caller: CommandCaller): Promise<number> {
  const loaded = loadConfig();
  if (loaded.kind === 'invalid') {
    caller.err(`${loaded.line}\n`);
    const others = loaded.lines.length - 1;
    if (others > 0) caller.err(`and ${others} more: ra-sidecar check-config\n`);
    return EXIT.failed;
  }
  return await (CONFIGURED[name]?.(loaded, args, caller) ?? EXIT.usage);
}

async function runServe(loaded: LoadedConfig, args: Args, caller: CommandCaller): Promise<number> {
  parsed(COMMANDS.serve, args);
  if (loaded.unservable === undefined) return await caller.serve(loaded);
  caller.err(`${loaded.unservable}\n`);
  return EXIT.failed;
}

/** `ra-sidecar check-config [FILE]`: prints the effective configuration, or all its errors. Resolves with the exit code. */
function checkConfig(args: readonly string[], { out, err: say }: Output): Promise<number> {
  const { values, operands } = parsed(COMMANDS['check-config'], args);
  const [file] = operands;
  const loaded = file === undefined ? loadConfig() : loadConfig(undefined, file);
  if (loaded.kind === 'invalid' || loaded.unservable !== undefined) {
    const lines = loaded.kind === 'invalid' ? loaded.lines : [loaded.unservable ?? ''];
    if (values.json) out(`${JSON.stringify({ ok: false, problems: lines }, null, 2)}\n`);
    else say(lines.map((line) => `${line}\n`).join(''));
    return Promise.resolve(EXIT.failed);
  }
  out(`${JSON.stringify(values.json ? report(loaded) : shown(loaded.config), null, 2)}\n`);
  if (!values.json) say(loaded.hints.map((hint) => `hint: ${hint}\n`).join(''));
  return Promise.resolve(EXIT.done);
}

function report({ config, hints, source }: LoadedConfig): object {
  return { ok: true, source, hints, config: shown(config) };
}

/** Secrets are in separate files; only a URL's query could contain one. */
function shown({ authorizer, delivery, ...rest }: Config): object {
  return { ...rest, authorizer: withoutQuery(authorizer), delivery: withoutQuery(delivery) };
}

function withoutQuery<T extends { readonly url?: string }>(section: T): T {
  return section.url === undefined ? section : { ...section, url: section.url.replace(/\?.*$/s, '?...') };
}

// Help texts, made from the table.

const NAME = 'ra-sidecar';

/** The folder of the pages, in a clone and in the installed package. */
const DOCS = join(fileURLToPath(new URL('../../../package.json', import.meta.url)), '..', 'docs');

/** Characters of a line; a terminal has 80. */
const WIDTH = 100;

/** How the program is configured. */
export const CONFIGURATION =
  'Settings come from the JSON or JSONC file that RA_CONFIG names and from RA_ variables; docs/config.md says which.';

/** The help text of a command or group (`keys create`, `keys`), or the general one for any other `path`. */
export function helpOf(path: string): string {
  const [name = '', action = ''] = path.split(' ');
  const entry = Object.hasOwn(COMMANDS, name)
    ? (COMMANDS as Readonly<Record<string, Command | Group>>)[name]
    : undefined;
  if (entry === undefined) return rootHelp();
  if (!isGroup(entry)) return commandHelp(name, entry);
  const command = Object.hasOwn(entry.commands, action) ? entry.commands[action] : undefined;
  return command ? commandHelp(`${name} ${action}`, command) : groupHelp(name, entry);
}

/** `keys rotate ID [--grace 24h]`, with the program's name. */
export function synopsis(path: string, { operand, options }: Command): string {
  const flags = Object.entries(options).map(([name, option]) => {
    const flag = `--${name}${option.value === undefined ? '' : ` ${option.choices?.join('|') ?? option.value}`}`;
    return option.about.endsWith('(required)') ? flag : `[${flag}]`;
  });
  const given = operand && `${operand.choices?.join('|') ?? operand.name}${operand.many ? '...' : ''}`;
  const operands = given === undefined ? [] : [operand?.optional ? `[${given}]` : given];
  return [NAME, path, ...operands, ...flags].join(' ');
}

function rootHelp(): string {
  const rows = Object.entries<Command | Group>(COMMANDS).map(([name, entry]): [string, string] => [
    isGroup(entry) ? `${name} ${Object.keys(entry.commands).join('|')}` : name,
    entry.about,
  ]);
  const more = `${NAME} COMMAND --help has details, ${NAME} --version prints the version. Exit codes: 0 done, 1 failed, 2 a wrong command line.`;
  return [
    `usage: ${NAME} COMMAND`,
    '',
    ...listed(rows),
    '',
    ...wrapped(more),
    ...wrapped(CONFIGURATION),
    `The pages are in ${DOCS}`,
    '',
  ].join('\n');
}

function groupHelp(name: string, { about, commands }: Group): string {
  const lines = Object.entries(commands).map(([action, command]) => synopsis(`${name} ${action}`, command));
  const rows = Object.entries(commands).map(([action, command]): [string, string] => [action, command.about]);
  const [first = '', ...rest] = lines;
  const usage = [`usage: ${first}`, ...rest.map((line) => `       ${line}`)];
  return [...usage, '', ...wrapped(`${about}.`), '', ...listed(rows), ''].join('\n');
}

function commandHelp(path: string, command: Command): string {
  const { about, details = [], operand, options, failed } = command;
  const given = operand ? [[operand.name, operand.about] as [string, string]] : [];
  const flags = Object.entries(options).map(([name, option]): [string, string] => [
    `--${name}${option.value === undefined ? '' : ` ${option.value}`}`,
    `${option.choices ? `${option.choices.join(', ')}; ` : ''}${option.about}`,
  ]);
  const rows = [...given, ...flags];
  const exits: [string, string][] = [
    ['0', 'done'],
    ['1', failed],
    ['2', 'a wrong command line'],
  ];
  return [
    `usage: ${synopsis(path, command)}`,
    '',
    ...wrapped(`${about}.`),
    ...[details].flat().flatMap((paragraph) => ['', ...wrapped(paragraph)]),
    ...(rows.length > 0 ? ['', ...listed(rows)] : []),
    '',
    'exit codes:',
    ...listed(exits),
    '',
  ].join('\n');
}

/** Two columns, the second wrapped. */
function listed(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length)) + 2;
  return rows.flatMap(([left, right]) =>
    wrapped(right, WIDTH - width - 2).map((line, i) => `  ${(i === 0 ? left : '').padEnd(width)}${line}`),
  );
}

function wrapped(text: string, width = WIDTH): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}
