/** The scripts of `ra-sidecar completion` in zsh and fish; `make test` tests bash’s, since bash is always installed. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { COMMANDS } from '../../sidecar/commands/command-table.js';
import { runCli } from '../support/cli.js';

const run = promisify(execFile);

/** Lines with one completion at their end, and the line after TAB. */
const ONLY_ONE: readonly (readonly [string, string])[] = [
  ['d', 'doctor'],
  ['models ve', 'models verify'],
  ['keys create --account acme --class s', 'keys create --account acme --class standard'],
  ['usage export --fo', 'usage export --format'],
  ['usage export --format c', 'usage export --format csv'],
  ['completion z', 'completion zsh'],
  ['models verify only', 'models verify only.gguf'],
  ['models add --dir f', 'models add --dir folder'],
];

async function scriptOf(shell: string, dir: string): Promise<string> {
  const { stdout } = await runCli(['completion', shell]);
  const file = join(dir, `completion.${shell}`);
  writeFileSync(file, stdout);
  return file;
}

t.test('zsh: TAB at an interactive prompt', async (t) => {
  const dir = t.testdir({ 'only.gguf': '', folder: {} });
  const script = await scriptOf('zsh', t.testdirName);
  // A new zsh behind a pseudo terminal; the command is a function that prints its arguments.
  const program = `
    zmodload zsh/zpty
    zpty inner zsh -f -i
    zpty -w inner "cd $1; autoload -U compinit; compinit -u -D; source $2; compdef _ra_sidecar ra-sidecar"
    zpty -w inner 'ra-sidecar() { print -r -- "CALLED" "<$*>" }'
    zpty -w -n inner "ra-sidecar $3"$'\\t\\n'
    zpty -r inner said '*CALLED \\<*\\>*'
    print -r -- "$said"`;
  for (const [typed, whole] of ONLY_ONE) {
    const { stdout } = await run('zsh', ['-fc', program, 'zsh', dir, script, typed], { timeout: 30_000 });
    t.equal(/CALLED <(.*?)\/?>/.exec(stdout)?.[1]?.trim(), whole, typed);
  }
});

t.test('fish: what TAB offers', async (t) => {
  const dir = t.testdir({ 'only.gguf': '', folder: {} });
  const script = await scriptOf('fish', t.testdirName);
  const offers = async (line: string): Promise<(string | undefined)[]> => {
    const program = 'source $argv[1]; complete -C "ra-sidecar $argv[2]"';
    const { stdout } = await run('fish', ['--no-config', '-c', program, script, line], { cwd: dir, timeout: 30_000 });
    return stdout.split('\n').flatMap((text) => (text === '' ? [] : [/^(.*?)\/?(?:\t|$)/.exec(text)?.[1]]));
  };
  t.strictSame((await offers('')).sort(), Object.keys(COMMANDS).sort());
  for (const [typed, whole] of ONLY_ONE) t.strictSame(await offers(typed), [whole.split(' ').at(-1)], typed);
});
