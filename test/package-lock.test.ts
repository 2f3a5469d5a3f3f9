import { readFileSync } from 'node:fs';
import t from 'tap';

interface Lock {
  readonly packages: Readonly<Record<string, Entry>>;
}

interface Entry {
  readonly version?: string;
  readonly integrity?: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

t.test('the lock file names every optional package; otherwise npm ci refuses it on a complete registry', (t) => {
  const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as Lock;
  const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.entries(optionalDependencies).filter(([name, wanted]) => {
      const found = packages[`${path}/node_modules/${name}`] ?? packages[`node_modules/${name}`];
      // Two versions of a library may name two versions of one binary. A range is left to npm.
      return found === undefined || (/^\d/.test(wanted) && found.version !== wanted);
    }),
  );
  t.same(missing, [], 'run node .ci/complete-lock.mjs');
  t.ok(Object.keys(packages).length > 100);
  t.end();
});
