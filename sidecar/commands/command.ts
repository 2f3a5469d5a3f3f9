/** Commands: described once for the parser, the help and docs/cli.md. */
import { parseArgs } from 'node:util';
import type { InspectHere } from '../engine-client/inspector.js';
import type { Clock } from '../lib/clock.js';

/** Exit codes of all commands. Each command describes its own meaning of `failed`. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 130 } as const;

interface Argument {
  readonly about: string;
  readonly choices?: readonly string[];
}

export interface Option extends Argument {
  readonly type: 'string' | 'boolean';
  /** The placeholder for the value in a help text; text options have one. */
  readonly value?: string;
}

export interface Operand extends Argument {
  /** As in a help text. */
  readonly name: string;
  readonly optional?: true;
  readonly many?: true;
}

export interface Command {
  /** One line, without a stop. */
  readonly about: string;
  /** Further paragraphs. */
  readonly details?: string | readonly string[];
  readonly operand?: Operand;
  readonly options: Readonly<Record<string, Option>>;
  /** Describes when it exits with 1. */
  readonly failed: string;
}

export interface Group {
  readonly about: string;
  readonly commands: Readonly<Record<string, Command>>;
}

/** A wrong command line. The message names options, never the given values, which may be a key by mistake. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Where a command writes. */
export interface Output {
  /** Writes results to stdout. */
  readonly out: (text: string) => void;
  /** Writes messages for people to stderr. */
  readonly err: (text: string) => void;
}

/** Says why a command failed. Returns its exit code. */
export function failedWith(say: Output['err'], why: string): number {
  say(`ra-sidecar: ${why}\n`);
  return EXIT.failed;
}

/** Where progress is shown: stderr. */
export interface Terminal {
  readonly isTTY?: boolean;
  /** Characters of a line. */
  readonly columns?: number;
  write(text: string): unknown;
}

/** An output with the clock and the terminal of commands that take long. */
export interface Io extends Output {
  readonly clock: Clock;
  readonly terminal: Terminal;
  readonly inspectHere?: InspectHere;
}

/** Every command has it. */
const HELP = { help: { type: 'boolean', short: 'h' } } as const;

/** The given options; an option that was not given is absent. */
export type Values<Options extends Command['options']> = {
  readonly [Name in keyof Options]?: Options[Name]['type'] extends 'string' ? string : boolean;
};

export interface Given<Options extends Command['options']> {
  readonly values: Values<Options>;
  readonly operands: readonly string[];
}

/** Runs the command of a group that `args` begin with. Resolves with its exit code. Rejects with {@link UsageError}. */
export async function runOf<Commands extends Group['commands']>(
  group: string,
  { commands }: { readonly commands: Commands },
  [name, ...args]: readonly string[],
  runs: { readonly [Name in keyof Commands]: (given: Given<Commands[Name]['options']>) => Promise<number> },
): Promise<number> {
  if (name === undefined) throw new UsageError(`${group}: a command is required`);
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) throw new UsageError(`${group}: unknown command`);
  return await runs[name as keyof Commands](parsed(command, args));
}

/** Parses `args` into options and operands. Throws {@link UsageError}. */
export function parsed<Options extends Command['options']>(
  { options, operand }: Omit<Command, 'options'> & { readonly options: Options },
  args: readonly string[],
): Given<Options> {
  const { values, positionals } = read(options, args);
  for (const [name, { choices }] of Object.entries(options)) {
    const value = values[name];
    if (value !== undefined && choices) known(`--${name}`, value, choices);
  }
  if (positionals.length === 0 && operand && operand.optional !== true)
    throw new UsageError(`one ${operand.name} is needed`);
  if (positionals.length > 1 && operand?.many !== true) {
    throw new UsageError(operand && operand.optional !== true ? `one ${operand.name} is needed` : 'too many arguments');
  }
  if (positionals.length > 0 && !operand) throw new UsageError('too many arguments');
  if (operand?.choices) for (const value of positionals) known(operand.name, value, operand.choices);
  return { values: values as Values<Options>, operands: positionals };
}

function read(
  options: Command['options'],
  args: readonly string[],
): { values: Readonly<Record<string, unknown>>; positionals: string[] } {
  try {
    return parseArgs({ args: [...args], options: { ...HELP, ...options }, allowPositionals: true, strict: true });
  } catch (error) {
    // Node's message names options and unknown ones; an operand, which may be a key by mistake, is not in it.
    const { code, message } = error as NodeJS.ErrnoException;
    if (code?.startsWith('ERR_PARSE_ARGS_') !== true) throw error;
    throw new UsageError(message.split('\n')[0]);
  }
}

function known(name: string, value: unknown, choices: readonly string[]): void {
  if (!choices.some((choice) => choice === value)) throw new UsageError(`${name} takes ${choices.join(', ')}`);
}
