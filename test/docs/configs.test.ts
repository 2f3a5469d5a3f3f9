import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { sourceRoot } from '../support/source-root.js';
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

t.test('nginx on a page keeps idle connections no longer than the tested file does', async (t) => {
  const kept = (text: string): string[] => {
    const [, upstream = ''] = /^upstream \S+ \{$([^}]*)^\}$/m.exec(text) ?? [];
    return [...upstream.matchAll(/^\s*(keepalive\w* .+;)$/gm)].map(([, setting = '']) => setting);
  };
  const tested = kept(readFileSync(join(sourceRoot, 'deploy/nginx/ra-sidecar.conf'), 'utf8'));
  t.equal(tested.length, 2);
  const shown = readPages().flatMap(({ path, blocks }) =>
    blocks
      .filter(({ info, text }) => info === 'nginx' && text.includes('upstream '))
      .map((block) => ({ path, ...block })),
  );
  t.not(shown.length, 0);
  for (const { path, line, text } of shown) t.strictSame(kept(text), tested, `${path}:${line}`);
});
