import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { countedNoise } from '../../../bench/support/noise.js';
import { forget, inPieces, medianRows } from '../../../bench/support/pieces.js';

const NAME = `test-${process.pid}`;
const SPEED = { arithmeticMs: 5, copyMs: 7 };

t.teardown(() => forget(NAME));

t.test('a bench continues after its finished pieces, and starts anew once they are deleted', async (t) => {
  const made: number[] = [];
  const make = (i: number): Promise<number> => {
    made.push(i);
    return i === 2 && made.length === 3 ? Promise.reject(new Error('ended')) : Promise.resolve(10 * i);
  };
  await t.rejects(inPieces(NAME, 4, make, 'code'), { message: 'ended' });
  t.same(await inPieces(NAME, 4, make, 'code'), [0, 10, 20, 30]);
  t.same(made, [0, 1, 2, 2, 3]);
  await forget(NAME);
  await inPieces(NAME, 1, make, 'code');
  t.same(made.slice(5), [0]);
});

t.test('pieces of other code are measured again', async (t) => {
  const made: number[] = [];
  const make = (i: number): Promise<number> => Promise.resolve(made.push(i));
  await inPieces(NAME, 2, make, 'old');
  await inPieces(NAME, 2, make, 'old');
  t.same(made, [0, 1]);
  await inPieces(NAME, 2, make, 'new');
  t.same(made, [0, 1, 0, 1]);
});

t.test('pieces of another processor are measured again, and each has what else was done meanwhile', async (t) => {
  const made: number[] = [];
  const make = (i: number): Promise<number> => Promise.resolve(made.push(i));
  await inPieces(NAME, 1, make, 'code of this');
  const file = fileURLToPath(new URL(`../../../../bench/.cache/pieces/${NAME}.json`, import.meta.url));
  const kept = JSON.parse(readFileSync(file, 'utf8')) as { noises: object[] };
  t.match(
    kept.noises,
    [{ busy: null, seconds: Number, speeds: [{ arithmeticMs: Number }, { copyMs: Number }] }],
    'a process that does not count its own work knows of no other',
  );
  writeFileSync(
    file,
    JSON.stringify({ ...kept, noises: [{ busy: 0.75, stolenPercent: 5, seconds: 3600, speeds: [SPEED] }] }),
  );
  await inPieces(NAME, 1, make, 'code of this');
  t.strictSame(made, [0]);
  const { speeds, ...counted } = countedNoise();
  t.match(counted, { busy: 0.75, stolenPercent: Number });
  t.strictSame(speeds.at(-1), SPEED);
  writeFileSync(file, JSON.stringify({ ...kept, machine: 'another' }));
  await inPieces(NAME, 1, make, 'code of this');
  t.strictSame(made, [0, 0]);
});

t.test('pieces are of the code that was there when the bench began', async (t) => {
  const root = t.testdir({
    'package.json': '{ "type": "module" }',
    'package-lock.json': '{}',
    bench: { 'a.bench.ts': '' },
    dist: { bench: { support: {} }, test: { support: {} } },
  });
  const modules = [
    'pieces',
    'bench-files',
    'stats',
    'noise',
    'busy',
    'stolen',
    'machine-speed',
    'machine',
    'commit',
  ].map((name) => `bench/support/${name}`);
  for (const name of [...modules, 'test/support/cpu-group'])
    copyFileSync(new URL(`../../../${name}.js`, import.meta.url), `${root}/dist/${name}.js`);
  writeFileSync(
    `${root}/dist/bench/a.bench.js`,
    `import { appendFileSync } from 'node:fs';
    import { inPieces } from './support/pieces.js';
    let made = 0;
    const make = async () => (made += 1);
    await inPieces('a', 1, make);
    appendFileSync('${root}/bench/a.bench.ts', '// edited\\n');
    await inPieces('a', 1, make);
    console.log(made);`,
  );
  const made = (): string | undefined =>
    execFileSync(process.execPath, [`${root}/dist/bench/a.bench.js`], { encoding: 'utf8' })
      .trim()
      .split('\n')
      .at(-1);
  t.equal(made(), '1', 'an edit during the run changes nothing');
  t.equal(made(), '1', 'the next start measures the edited code');
});

t.test('medians are of numbers, and of each number in a cell', async (t) => {
  const table = (rate: number, times: string): Record<string, number | string>[] => [
    { model: 'm', load: 'closed, 8', rate, times },
  ];
  t.same(medianRows([table(3, '1.0 / 9.0'), table(1, '2.0 / 7.0'), table(2, '3.0 / 8.0')]), [
    { model: 'm', load: 'closed, 8', rate: 2, times: '2.0 / 8.0' },
  ]);
});
