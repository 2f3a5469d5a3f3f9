import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { readPages } from './pages.js';

t.test('each configuration on a page is valid', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-configs-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const shown = readPages().flatMap(({ path, blocks }) =>
    blocks.filter(({ info }) => info === 'jsonc').map((block) => ({ path, ...block })),
  );
  t.ok(shown.length >= 4);
  for (const { path, line, text } of shown) {
    const file = join(dir, 'shown.jsonc');
    writeFileSync(file, text);
    const loaded = loadConfig({ RA_CONFIG: file });
    t.equal(loaded.kind === 'invalid' ? loaded.line : 'good', 'good', `${path}:${line}`);
  }
});
