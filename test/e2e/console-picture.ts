/**
 * Takes the pictures of the console that the documentation shows, under load, in Debian's Chromium:
 *
 *   node dist/test/e2e/console-picture.js [folder, default docs] [seconds of load, default 70; 0: only the keys]
 *
 * Then `pngquant --force --ext .png docs/console*.png`: the npm package has them, and is bounded.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { argv } from 'node:process';
import { sourceRoot } from '../support/source-root.js';
import { Tab } from './cdp.js';
import { ConsoleHarness } from './console-harness.js';
import { KeysConsole } from './keys-console.js';

const teardowns: (() => Promise<void> | void)[] = [];
const owner = { teardown: (fn: () => Promise<void> | void) => void teardowns.push(fn) };
const folder = argv[2] ?? join(sourceRoot, 'docs');
const seconds = Number(argv[3] ?? 70);
const DESK = { width: 1280, height: 900 } as const;
const PHONE = { width: 360, height: 1100 } as const;

/** Colours and bars no longer change. */
async function settled(tab: Tab): Promise<void> {
  await tab.value('new Promise((resolve) => setTimeout(resolve, 1500))');
}

async function pictureLive(): Promise<void> {
  const harness = await ConsoleHarness.start(owner);
  const tab = await Tab.open(owner, DESK);
  await tab.goto(`http://127.0.0.1:${harness.sidecar.operatorsPort}/console`);
  harness.begin();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const theme = (name: string): Promise<unknown> =>
    tab.value(`document.documentElement.setAttribute('data-theme', '${name}')`);
  await theme('dark');
  await tab.send('Emulation.setScrollbarsHidden', { hidden: true });
  const height = await tab.value<number>('document.documentElement.scrollHeight');
  await tab.resize({ ...DESK, height });
  await tab.until(`document.querySelector('.seat[data-state=prefilling]')`);
  await settled(tab);
  await writeFile(join(folder, 'console.png'), await tab.screenshot());
  if (argv[2] !== undefined) {
    await theme('light');
    await settled(tab);
    await writeFile(join(folder, 'console-light.png'), await tab.screenshot());
    await tab.resize(PHONE);
    for (const at of [0, 1, 2]) {
      await tab.value(`window.scrollTo(0, ${at * PHONE.height})`);
      await settled(tab);
      await writeFile(join(folder, `console-phone-${at}.png`), await tab.screenshot());
    }
  }
}

/** Of the keys: the list, a dialog, and the new key; with another folder than docs also the other theme and a phone. */
async function pictureKeys(): Promise<void> {
  const { sidecar, secret } = await KeysConsole.start(owner);
  const tab = await Tab.open(owner, DESK);
  await tab.goto(`http://127.0.0.1:${sidecar.app.operatorsPort}/console#keys`);
  await tab.until(`document.activeElement.id === 'key'`);
  await tab.type(secret);
  await tab.press('Enter', 'Enter', '\r');
  await tab.until(`document.querySelector('.account')`);
  await tab.send('Emulation.setScrollbarsHidden', { hidden: true });
  const take = async (name: string): Promise<void> => {
    await settled(tab);
    await writeFile(join(folder, `console-keys${name}.png`), await tab.screenshot());
  };
  const click = (text: string): Promise<unknown> =>
    tab.value(
      `[...document.querySelectorAll('#keys button, #dialog button')].find((at) => at.textContent === '${text}' && !at.disabled).click()`,
    );
  const all = argv[2] !== undefined;
  for (const theme of all ? ['dark', 'light'] : ['dark']) {
    const end = theme === 'dark' ? '' : `-${theme}`;
    await tab.value(`document.documentElement.setAttribute('data-theme', '${theme}')`);
    await tab.resize({ ...DESK, height: await tab.value<number>(`document.body.scrollHeight`) });
    await take(end);
    await tab.resize(DESK);
    if (!all) {
      await tab.value(`document.documentElement.setAttribute('data-theme', 'light')`);
      await click('Create key');
      await take('-create');
      continue;
    }
    for (const dialog of ['Create key', 'Edit', 'Rotate', 'Revoke', 'Grant credit']) {
      await click(dialog);
      await take(`-${dialog.split(' ')[0]?.toLowerCase() ?? ''}${end}`);
      await click('Cancel');
    }
    await click('Rotate');
    await tab.value(`document.querySelector('#dialog form').requestSubmit()`);
    await tab.until(`document.getElementById('new-key')`);
    await take(`-new${end}`);
    await click('I have kept it');
    await tab.resize(PHONE);
    await take(`-phone${end}`);
    await click('Create key');
    await take(`-phone-create${end}`);
    await click('Cancel');
    await tab.resize(DESK);
  }
}

try {
  if (seconds > 0) await pictureLive();
  await pictureKeys();
} finally {
  for (const teardown of teardowns.reverse()) await teardown();
}
