/** What docs/deploy.md copies suffices for a sidecar: it is copied into an empty folder and started there. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { readPages } from '../docs/pages.js';
import { sourceRoot } from '../support/source-root.js';

/** The operands of the page’s `cp` line, from the repository’s root. */
function copiedByPage(): readonly string[] {
  const page = readPages().find(({ path }) => path === 'docs/deploy.md');
  for (const { text } of page?.blocks ?? []) {
    const [, names] = /^cp -r --parents (.+) \/opt\/ra-sidecar-[\d.]+$/m.exec(text) ?? [];
    if (names !== undefined) return names.split(' ');
  }
  return [];
}

async function copy(t: Test, names: readonly string[]): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-copied-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  for (const name of names) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    // Packages are linked, not copied: they are hundreds of megabytes and are not what is tested.
    if (name === 'node_modules') await symlink(join(sourceRoot, name), join(dir, name));
    else await cp(join(sourceRoot, name), join(dir, name), { recursive: true });
  }
  return dir;
}

t.test('the copied files serve the console and a chat', async (t) => {
  const names = copiedByPage();
  t.ok(names.includes('dist') && names.includes('node_modules'), names.join(' '));
  const dir = await copy(t, names);
  const child = spawn(process.execPath, ['dist/sidecar/cli.js', 'serve'], {
    cwd: dir,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' },
  });
  const ended = once(child, 'close');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  let printed = '';
  for await (const text of child.stderr.setEncoding('utf8')) {
    printed += String(text);
    if (printed.includes('"messages"')) break;
  }
  const [, base = ''] = /is ready at (\S+)/.exec(printed) ?? [];
  const [, operators = ''] = /operators' listener: +(\S+)\/metrics/.exec(printed) ?? [];
  const [key = ''] = /ra-dev-[\w-]+/.exec(printed) ?? [];

  const page = await fetch(`${operators}/console`);
  t.equal(page.status, 200);
  t.match(await page.text(), /<html/);
  const chat = await fetch(`${base}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'ra-tiny-chat', max_tokens: 4, messages: [{ role: 'user', content: 'Hello' }] }),
  });
  t.equal(chat.status, 200, await chat.text());
});
