import { readFileSync } from 'node:fs';
import t from 'tap';
import { EXIT, parsed, UsageError, type Command } from '../../../sidecar/commands/command.js';
import { cliDocs } from '../../generate/cli-docs.js';
import { helpOf, orUsage, synopsis } from '../../../sidecar/commands/help.js';
import { bytesOf, columns, rate, size, wholeOf } from '../../../sidecar/commands/layout.js';
import { allCommands, COMMANDS } from '../../../sidecar/commands/command-table.js';
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

t.test('a wrong command line is reported with its help; other errors pass through', async (t) => {
  let said = '';
  const say = (text: string): void => void (said += text);
  const wrong = (): Promise<number> => Promise.reject(new UsageError('no'));
  t.equal(await orUsage('keys list', { err: say }, wrong), EXIT.usage);
  t.match(said, /^ra-sidecar: no\n\nusage: ra-sidecar keys list \[--json\]\n/);
  await t.rejects(
    orUsage('keys', { err: say }, () => Promise.reject(new Error('fault'))),
    { message: 'fault' },
  );
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

t.test('sizes, numbers and columns', async (t) => {
  t.strictSame([0, 1023, 1024, 1.5 * 2 ** 30, 2 ** 52].map(size), ['0 B', '1,023 B', '1 KiB', '1.5 GiB', '4,096 TiB']);
  t.strictSame(
    ['24GiB', '24g', '1.5 MiB', '2T'].map((text) => bytesOf('--memory', text)),
    [24 * 2 ** 30, 24 * 2 ** 30, 1.5 * 2 ** 20, 2 * 2 ** 40],
  );
  for (const text of ['24', 'GiB', '-1GiB', '1e3GiB', '12345678GiB', '5PiB']) {
    t.throws(() => bytesOf('--memory', text), UsageError, text);
  }
  t.equal(wholeOf('--seats', '8', 1, 8), 8);
  for (const text of ['0', '9', '1.5', 'x', '']) t.throws(() => wholeOf('--seats', text, 1, 8), UsageError, text);
  t.equal(
    columns([
      ['A', 'BB'],
      ['long', 'x'],
      ['s', ''],
    ]),
    'A     BB\nlong  x\ns\n',
  );
  t.strictSame([1234.5, 123.4, 12.34, 0.01234].map(rate), ['1,235', '123', '12.3', '0.0123']);
});
