/**
 * The compiled C++ of the repository is what its sources give: with Debian 12’s compilers two builds and the committed file have the
 * same bytes. ra-engine alone, since ra-vision takes minutes.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { addonFile, buildNative, PROCESSORS } from '../../engine/native/build.js';
import { sourceRoot } from '../support/source-root.js';

t.test('two builds of ra-engine equal the one in the repository', async (t) => {
  const root = t.testdir({ one: {}, other: {} });
  const folders = [join(root, 'one'), join(root, 'other')];
  for (const folder of folders) await buildNative(sourceRoot, folder, PROCESSORS, ['ra-engine']);
  for (const processor of PROCESSORS) {
    const committed = readFileSync(addonFile(join(sourceRoot, 'engine/native/bin'), 'ra-engine', processor));
    for (const folder of folders)
      t.ok(readFileSync(addonFile(folder, 'ra-engine', processor)).equals(committed), `${processor}: the same bytes`);
  }
});
