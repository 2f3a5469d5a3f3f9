/** The scripts of `ra-sidecar completion`, bash’s run by bash itself; test/e2e/completion.e2e.ts runs the others. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { allCommands, COMMANDS, isGroup } from '../../../sidecar/commands/command-table.js';
import { runHere } from '../../support/command-here.js';

const run = promisify(execFile);

/** What bash offers for TAB at the end of `line`, calling the function that `complete` names as readline does. */
async function offers(script: string, line: string, cwd: string): Promise<string[]> {
  // As readline does with bash’s own COMP_WORDBREAKS: an = is a word.
  const words = line.split(/ +|(?==)|(?<==)/);
  const program = `
    source "$1"; shift
    name=$(complete -p ra-sidecar | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=\${#COMP_LINE}
    "$name" ra-sidecar "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD-1]}"
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = await run('bash', ['--norc', '-uc', program, 'bash', script, ...words], { cwd });
  if (stderr !== '') throw new Error(stderr);
  return stdout.split('\n').filter((text) => text !== '');
}

t.test('bash completes commands, options and values', async (t) => {
  const { code, stdout } = await runHere(['completion', 'bash']);
  t.equal(code, 0);
  const dir = t.testdir({ 'a model.gguf': '', folder: {} });
  const script = join(t.testdirName, 'ra-sidecar.bash');
  writeFileSync(script, stdout);
  const all = (line: string): Promise<string[]> => offers(script, line, dir);

  t.strictSame(await all('ra-sidecar '), [...Object.keys(COMMANDS), '--help']);
  t.strictSame(await all('ra-sidecar d'), ['doctor']);
  t.strictSame(await all('ra-sidecar keys '), ['create', 'list', 'revoke', 'rotate', 'import', '--help']);
  t.strictSame(await all('ra-sidecar models v'), ['verify', 'vocabulary']);
  t.strictSame(await all('ra-sidecar completion '), ['bash', 'zsh', 'fish']);
  t.strictSame(await all('ra-sidecar usage export --f'), ['--from', '--format']);
  t.strictSame(await all('ra-sidecar usage export --format '), ['jsonl', 'csv', 'focus']);
  t.strictSame(await all('ra-sidecar usage export --format=c'), ['csv']);
  t.strictSame(await all('ra-sidecar usage export --format='), ['jsonl', 'csv', 'focus']);
  t.strictSame(await all('ra-sidecar usage export --from '), [], 'a time has no completions');
  t.strictSame(await all('ra-sidecar keys create --account acme --class s'), ['standard']);
  t.strictSame(await all('ra-sidecar models verify a'), ['a model.gguf'], 'one file, spaces and all');
  t.strictSame(await all('ra-sidecar models add --dir f'), ['folder']);
  t.strictSame(await all('ra-sidecar models add --dir a'), [], 'a file is no folder');
  t.strictSame(await all('ra-sidecar nonsense '), [...Object.keys(COMMANDS), '--help']);
  for (const [path, { options }] of allCommands()) {
    const flags = [...Object.keys(options).map((name) => `--${name}`), '--help'];
    t.strictSame(await all(`ra-sidecar ${path} --`), flags, path);
  }
});

t.test('zsh and fish: the script has all commands', async (t) => {
  for (const shell of ['zsh', 'fish']) {
    const { code, stdout } = await runHere(['completion', shell]);
    t.equal(code, 0);
    for (const [path, { options }] of allCommands()) {
      for (const word of path.split(' ')) t.ok(stdout.includes(word), `${shell}: ${word}`);
      for (const name of Object.keys(options)) t.ok(stdout.includes(name), `${shell}: ${name}`);
    }
  }
  t.ok(Object.values(COMMANDS).some(isGroup));
});

t.test('another shell is a wrong command line', async (t) => {
  t.match(await runHere(['completion', 'cmd']), { code: 2, stdout: '', stderr: /SHELL takes bash, zsh, fish/ });
  t.match(await runHere(['completion']), { code: 2, stdout: '', stderr: /one SHELL is needed/ });
});
