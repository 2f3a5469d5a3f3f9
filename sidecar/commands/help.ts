/** Help texts, made from the table. */
import { join } from 'node:path';
import type { Command, Group } from './command.js';
import { COMMANDS, isGroup } from './command-table.js';

export const NAME = 'ra-sidecar';

/** The folder of the pages, in a clone and in the installed package. */
const DOCS = join(import.meta.dirname, '..', '..', '..', 'docs');

/** Characters of a line; a terminal has 80. */
const WIDTH = 100;

/** How the program is configured. */
export const CONFIGURATION =
  'Settings come from the JSON or JSONC file that RA_CONFIG names and from RA_ variables; docs/config.md lists them.';

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
    ...details.flatMap((paragraph) => ['', ...wrapped(paragraph)]),
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
