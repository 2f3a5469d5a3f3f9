import { readFileSync } from 'node:fs';
import t from 'tap';

interface Lock {
  readonly packages: Readonly<Record<string, { readonly optionalDependencies?: Readonly<Record<string, string>> }>>;
}

t.test('the lock names every optional package, or npm ci refuses it on a full registry', (t) => {
  const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as Lock;
  const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter(
      (name) => !(`node_modules/${name}` in packages) && !(`${path}/node_modules/${name}` in packages),
    ),
  );
  t.same(missing, [], 'run node .ci/complete-lock.mjs');
  t.ok(Object.keys(packages).length > 100);
  t.end();
});
