// Rejects commit subjects that are too long. The hook and test/commit-subjects.test.ts run it.
// Usage: node .ci/commit-subjects.mjs MESSAGE-FILE   the message of a commit about to be made
//        node .ci/commit-subjects.mjs                all commits after BASE, in the current directory's repository
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const MAX_CHARACTERS = 72;

// The last commit before the rule; older subjects stay as they are.
const BASE = '9cab3dea64988eaed619f24b36e5fbfcddfa525f';

const file = process.argv[2];
const subjects = file === undefined ? newSubjects() : [subjectOf(readFileSync(file, 'utf8'))];
const tooLong = subjects.filter((subject) => [...subject].length > MAX_CHARACTERS);
for (const subject of tooLong)
  console.error(`The subject has ${[...subject].length} characters, ${MAX_CHARACTERS} are allowed: ${subject}`);
process.exitCode = tooLong.length > 0 ? 1 : 0;

// The first line that git keeps: blank lines and comments are removed from a message that was edited.
function subjectOf(message) {
  return message.split('\n').find((line) => line.trim() !== '' && !line.startsWith('#')) ?? '';
}

// Of a shallow clone whose history begins after BASE: all commits. Of a copy without this history: none.
function newSubjects() {
  const known = git('cat-file', '-e', `${BASE}^{commit}`) !== undefined;
  if (!known && git('rev-parse', '--is-shallow-repository')?.trim() !== 'true') return [];
  const range = known ? [`${BASE}..HEAD`] : ['HEAD'];
  return (git('log', '--no-merges', '--format=%s', ...range) ?? '').split('\n').filter((subject) => subject !== '');
}

// Undefined when the command fails, or where there is no git.
function git(...args) {
  const { status, stdout } = spawnSync('git', args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  return status === 0 ? stdout : undefined;
}
