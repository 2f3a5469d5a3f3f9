import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { ADDON_NAMES, addonFile, digestOf, PROCESSORS } from '../../../engine/native/build.js';
import { sourceRoot } from '../../support/source-root.js';

const BIN = join(sourceRoot, 'engine/native/bin');

t.test('each binary in the repository was made from the present sources', (t) => {
  for (const name of ADDON_NAMES) {
    const digest = digestOf(sourceRoot, name);
    for (const processor of PROCESSORS) {
      const [found] = /sources:[0-9a-f]{64}/.exec(readFileSync(addonFile(BIN, name, processor), 'latin1')) ?? [];
      t.equal(found, digest, `${name} for ${processor}: run make native and commit engine/native/bin`);
    }
  }
  t.end();
});

t.test('no binary needs a newer C or C++ library than llama.cpp’s own', (t) => {
  // The floor of npm's libraries, as docs/deploy.md tells it: glibc 2.34 and GCC 12's libstdc++.
  for (const name of ADDON_NAMES)
    for (const processor of PROCESSORS) {
      const text = readFileSync(addonFile(BIN, name, processor), 'latin1');
      const newest = (of: string): number =>
        Math.max(...[...text.matchAll(new RegExp(`${of}\\.([0-9]+)\\0`, 'g'))].map(([, minor]) => Number(minor)));
      t.ok(newest('GLIBC_2') <= 34, `${name} for ${processor}: glibc 2.${newest('GLIBC_2')}`);
      t.ok(newest('GLIBCXX_3\\.4') <= 30, `${name} for ${processor}: GLIBCXX_3.4.${newest('GLIBCXX_3\\.4')}`);
    }
  t.end();
});
