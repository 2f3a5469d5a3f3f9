/**
 * Takes the picture of the console that the documentation shows, under load, in Debian's Chromium:
 *
 *   node dist/test/e2e/console-picture.js [folder, default docs] [seconds of load, default 70]
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { argv } from 'node:process';
import { sourceRoot } from '../support/source-root.js';
import { Tab } from './cdp.js';
import { ConsoleHarness } from './console-harness.js';

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

try {
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
} finally {
  for (const teardown of teardowns.reverse()) await teardown();
}
