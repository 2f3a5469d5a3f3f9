import { readFileSync } from 'node:fs';
import t from 'tap';
import { EXIT, parsed, UsageError, type Command } from '../../../sidecar/commands/command.js';
import { allCommands, cliDocs } from '../../generate/cli-docs.js';
import { helpOf, synopsis } from '../../../sidecar/commands/command-line.js';
import { COMMANDS } from '../../../sidecar/commands/command-table.js';
import { runHere } from '../../support/command-here.js';
import { sourceRoot } from '../../support/source-root.js';

const paint = {
  about: 'paint something',
  operand: { name: 'WHAT', about: 'what to paint' },
  options: {
    colour: { type: 'string', value: 'C', about: 'which colour', choices: ['red', 'blue'] },
    twice: { type: 'boolean', about: 'two coats' },
  },
  failed: 'the paint ran out',
} as const satisfies Command;

t.test('options and operands are parsed, and errors do not repeat the given values', async (t) => {
  t.match(parsed(paint, ['fence', '--colour', 'red', '--twice']), {
    values: { colour: 'red', twice: true },
    operands: ['fence'],
  });
  t.match(parsed(paint, ['--colour=blue', '--', '--fence']), { values: { colour: 'blue' }, operands: ['--fence'] });
  const secret = 'ra-key-secret';
  for (const [args, problem] of [
    [[], 'one WHAT is needed'],
    [['a', secret], 'one WHAT is needed'],
    [['a', '--colour', secret], '--colour takes red, blue'],
    [['a', '--colour'], /--colour/],
    [['a', '--shape', secret], /--shape/],
  ] as const) {
    const thrown = ((): unknown => {
      try {
        return parsed(paint, args);
      } catch (error) {
        return error;
      }
    })();
    t.type(thrown, UsageError, args.join(' '));
    t.match(thrown, { message: problem });
    t.notOk(String(thrown).includes(secret));
  }
  const { operand, ...bare } = paint;
  t.throws(() => parsed(bare, ['fence']), { message: 'too many arguments' });
  const optional = { ...paint, operand: { ...operand, optional: true, choices: ['fence', 'wall'] } } as const;
  t.strictSame(parsed(optional, []).operands, []);
  t.throws(() => parsed(optional, ['fence', 'wall']), { message: 'too many arguments' });
  t.throws(() => parsed(optional, ['roof']), { message: 'WHAT takes fence, wall' });
  t.strictSame(
    parsed({ ...optional, operand: { ...optional.operand, many: true } }, ['fence', 'wall']).operands.length,
    2,
  );
});

t.test('a wrong command line is reported with its help', async (t) => {
  const wrong = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runHere(args);
    t.strictSame([code, stdout], [EXIT.usage, ''], args.join(' '));
    return stderr;
  };
  t.match(
    await wrong('keys', 'list', '--color'),
    /^ra-sidecar: .*--color.*\n\nusage: ra-sidecar keys list \[--json\]\n/,
  );
  t.equal(await wrong('keys', 'no-key'), `ra-sidecar: keys: unknown command\n\n${helpOf('keys')}`);
  t.equal(await wrong('nonsense'), `ra-sidecar: unknown command\n\n${helpOf('')}`);
  t.equal(await wrong(), `ra-sidecar: a command is required\n\n${helpOf('')}`);
});

t.test('each command has a help text with all of its options and its exit codes', async (t) => {
  t.equal(helpOf('nonsense'), helpOf(''));
  t.equal(helpOf('__proto__'), helpOf(''));
  t.equal(helpOf('keys toString'), helpOf('keys'));
  for (const name of Object.keys(COMMANDS)) t.match(helpOf(''), new RegExp(`^  ${name}\\b`, 'm'));
  for (const [path, command] of allCommands()) {
    const help = helpOf(path);
    t.ok(help.startsWith(`usage: ${synopsis(path, command)}\n`), path);
    for (const option of Object.keys(command.options)) t.match(help, new RegExp(`^  --${option}\\b`, 'm'), path);
    t.match(help, /^ {2}2 {2}a wrong command line$/m);
    t.notMatch(command.about, /^[A-Z]|\.$/, 'one phrase');
    for (const line of help.split('\n').slice(1)) t.ok(line.length <= 100, line);
  }
});

t.test('docs/cli.md equals what the commands generate (`make docs` writes it)', async (t) => {
  t.equal(readFileSync(`${sourceRoot}/docs/cli.md`, 'utf8'), cliDocs());
});
