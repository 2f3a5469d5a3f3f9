/**
 * The console’s page and its sidecar: stopped and restarted, with a key, with another version. In Debian’s Chromium.
 */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { PAGE_FILES } from '../../sidecar/console/console.js';
import { freePort } from '../support/free-port.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';
import { Tab } from './cdp.js';

const DESK = { width: 1280, height: 900 };
const FAST = { console: { intervalMs: 250 } };

const urlOf = (port: number): string => `http://127.0.0.1:${port}/console`;

t.test('a sidecar that stops and starts again', async (t) => {
  const port = await freePort();
  const start = async (): Promise<Sidecar> =>
    Sidecar.start(t, { config: { ...(await chatOnly(2)), ...FAST, operators: { host: '127.0.0.1', port } } });
  const first = await start();
  const tab = await Tab.open(t, DESK);
  const pill = `document.getElementById('state')`;
  await tab.goto(urlOf(port));
  await tab.until(`document.getElementById('state').textContent === 'ready'`);
  first.child.kill('SIGKILL');
  await first.exited();
  await tab.until(`!document.getElementById('lost').hidden`);
  await tab.until(`/Trying again in \\d+ s/.test(document.getElementById('lost-text').textContent)`);
  await tab.until(`document.documentElement.dataset.old === 'yes'`);
  t.strictSame(await tab.value(`[${pill}.textContent, ${pill}.dataset.tone, document.title]`), [
    'was ready',
    'quiet',
    'was ready: ra-sidecar console',
  ]);
  t.match(await tab.value(`document.getElementById('news').textContent`), /Connection lost|ended the connection/);
  await tab.until(`/^as of \\d+ s ago$/.test(document.getElementById('clock').textContent)`);
  await start();
  await tab.until(`document.getElementById('lost').hidden && document.getElementById('clock').textContent === 'live'`);
  t.equal(await tab.value(`document.documentElement.dataset.old`), 'no');
  await tab.until(`${pill}.textContent === 'ready' && ${pill}.dataset.tone === 'good'`);
  t.equal(await tab.value(`document.title`), 'ra-sidecar console');
  t.strictSame(tab.complaints, []);
});

t.test(
  'a page of another version than the sidecar shows that, stops its requests, and is reloaded by its button',
  async (t) => {
    let asked = 0;
    const later = createServer((request, response) => {
      const name = new Map<string, string>(Object.entries(PAGE_FILES)).get(request.url ?? '');
      if (name === undefined) {
        asked += 1;
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"v":99}\n\n');
        return;
      }
      const type = name.endsWith('.js') ? 'text/javascript' : name.endsWith('.css') ? 'text/css' : 'text/html';
      response.writeHead(200, { 'content-type': name.endsWith('.svg') ? 'image/svg+xml' : type });
      createReadStream(join(sourceRoot, 'sidecar/console/page', name)).pipe(response);
    }).listen(0, '127.0.0.1');
    await once(later, 'listening');
    t.teardown(() => {
      later.closeAllConnections();
      later.close();
    });
    const tab = await Tab.open(t, DESK);
    await tab.goto(urlOf((later.address() as AddressInfo).port));
    await tab.until(`!document.getElementById('lost').hidden`);
    const text = (id: string): Promise<string> => tab.value(`document.getElementById('${id}').textContent`);
    t.equal(await text('lost-text'), 'This page is of another version than the sidecar.');
    t.match(await text('news'), /another version/, 'screen readers are reported');
    t.equal(await text('again'), 'Reload');
    t.equal(asked, 1);
    // Clicked after this answer, which the reload would end.
    await tab.value(`window.before = true; setTimeout(() => document.getElementById('again').click())`);
    await tab.until(`window.before === undefined && document.getElementById('lost')?.hidden === false`);
    t.equal(asked, 2, 'once for each load of the page');
    t.strictSame(tab.complaints, []);
  },
);

t.test('where a key is set the page asks for it, sends it, and stores it nowhere', async (t) => {
  const file = join(t.testdir(), 'operators.txt');
  const key = 'operators-key-for-the-console-test-0123456789';
  await writeFile(file, `${key}\n`);
  const sidecar = await Sidecar.start(t, {
    config: { ...(await chatOnly(2)), ...FAST, operators: { host: '127.0.0.1', port: 0, secretFile: file } },
  });
  const tab = await Tab.open(t, DESK);
  await tab.goto(urlOf(sidecar.operatorsPort));
  const asked = `!document.getElementById('ask-key').hidden && document.activeElement.id === 'key'`;
  await tab.until(asked);
  await tab.type('x'.repeat(40));
  await tab.press('Enter', 'Enter', '\r');
  await tab.until(`${asked} && document.getElementById('key').ariaInvalid === 'true'`);
  t.equal(await tab.value(`document.getElementById('news').textContent`), 'That is not the operators’ key.');
  t.equal(await tab.value(`document.getElementById('key-wrong').innerText`), 'That is not the operators’ key.');
  await tab.type(key);
  await tab.press('Enter', 'Enter', '\r');
  await tab.until(
    `document.getElementById('ask-key').hidden && document.getElementById('state').textContent === 'ready'`,
  );
  t.equal(await tab.value(`document.activeElement.id`), 'models', 'the focus is not lost');
  t.notOk(
    tab.requested.some((url) => url.includes(key)),
    'not in a URL',
  );
  const kept = `JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML])`;
  t.notMatch(await tab.value(kept), key);
  await tab.goto(urlOf(sidecar.operatorsPort));
  await tab.until(asked);
  t.strictSame(tab.complaints, []);
});
