import { join } from 'node:path';
import t from 'tap';
import { SecretFile } from '../../../sidecar/lib/secret-file.js';
import { FileProblem } from '../../../sidecar/lib/checked-file.js';
import { FakeClock } from '../../support/fake-clock.js';

const OLD = 'old'.padEnd(40, '-');
const NEW = 'new'.padEnd(40, '-');
const quiet = { changed: (): void => undefined, unusable: (): void => undefined };

t.test('secrets are the lines of a file', async (t) => {
  const file = join(t.testdir({ secrets: `# rotated in May\n${OLD}\r\n\n  ${NEW}\n` }), 'secrets');
  const secrets = await SecretFile.open(file, new FakeClock(), quiet);
  for (const guess of [OLD, NEW]) t.equal(secrets.has(guess), true);
  for (const guess of ['', '# rotated in May', `${OLD} `, OLD.slice(1), OLD.toUpperCase()])
    t.equal(secrets.has(guess), false, guess);
  t.equal(secrets.first, OLD);
});

t.test('a file that cannot be used ends the start, and is not quoted', async (t) => {
  const canary = 'kanarienvogel';
  const files: Record<string, string> = {
    short: canary,
    blank: '\n# none\n',
    letters: `${canary.padEnd(32, 'ü')}\n`,
    spaced: `${OLD} ${canary}`,
    long: canary.repeat(100),
    many: Array.from({ length: 9 }, (_, i) => `${OLD}${i}`).join('\n'),
    huge: '#'.repeat(9000),
  };
  const dir = t.testdir(files);
  for (const name of [...Object.keys(files), 'absent', '.']) {
    const opening = SecretFile.open(join(dir, name), new FakeClock(), quiet);
    await opening.then(
      () => t.fail(name),
      (error: unknown) => {
        t.ok(error instanceof FileProblem, name);
        t.match(String(error), /^FileProblem: secrets: .+ \(file .+\)$/);
        t.notMatch(String(error), canary);
      },
    );
  }
});
