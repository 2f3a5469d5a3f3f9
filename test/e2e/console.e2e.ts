/** The operators’ console in Debian’s Chromium, under load, with mouse, keyboard and screen reader. */
import t from 'tap';
import { atRest, FeedReader, sameNumbers } from '../support/console-feed.js';
import { CHAT } from '../support/sidecar.js';
import { Tab } from './cdp.js';
import { ConsoleHarness } from './console-harness.js';
import { lowContrast, paleShapes, underAim } from './page-checks.js';

const DESK = { width: 1280, height: 900 };
const PHONE = { width: 360, height: 740 };
const FAST = { console: { intervalMs: 250 } };

const urlOf = (port: number): string => `http://127.0.0.1:${port}/console`;
const media = (tab: Tab, name: string, value: string): Promise<unknown> =>
  tab.send('Emulation.setEmulatedMedia', { features: [{ name, value }] });

t.test('under load', async (t) => {
  const harness = await ConsoleHarness.start(t, FAST);
  const { operatorsPort } = harness.sidecar;
  const tab = await Tab.open(t, DESK);
  await tab.goto(urlOf(operatorsPort));
  await tab.until(`document.querySelectorAll('.seat[data-seat]').length === 10`);
  t.equal(await tab.value(`document.querySelectorAll('.seat[data-seat][data-state=free]').length`), 10);
  harness.begin();

  await t.test('the seats change: prefilling, decoding, given to other accounts', async (t) => {
    for (const state of ['prefilling', 'decoding']) {
      await tab.until(`document.querySelector('.seat[data-seat][data-state=${state}]')`);
    }
    const account = `document.querySelector('.seat[data-seat="1"] b').textContent`;
    const first = await tab.value<string>(account);
    await tab.until(`${account} !== ${JSON.stringify(first)}`);
    t.pass(`${first} left seat 1`);
    await tab.until(`document.querySelectorAll('.bar i[style*="max"]').length > 2`);
    await tab.until(
      `/\\d+ requests? waiting/.test(document.querySelector('[aria-label="Queue of ${CHAT}"]').innerText)`,
    );
    t.equal(await tab.value(`document.getElementById('clock').textContent`), 'live');
  });

  await t.test('every part has a name in the accessibility tree', async (t) => {
    const tree = await tab.accessibility();
    const names = (role: string): string[] => tree.filter((node) => node.role === role).map(({ name }) => name);
    t.ok(names('heading').includes('ra-sidecar') && names('heading').includes(CHAT));
    const pictures = names('image');
    t.ok(
      pictures.some((name) => /^8 seats, .*(decode|prefill).*free$/.test(name)),
      pictures.join(' | '),
    );
    t.ok(pictures.some((name) => /^Time to first token, last (minute|\d+ s): \d+ values?, p50 .+ p99 /.test(name)));
    t.ok(pictures.some((name) => /^Time between tokens, last (minute|\d+ s): [\d,]+ values, p50 /.test(name)));
    for (const table of [`Queue of ${CHAT} by account`, 'Engines', 'Prompt hosts']) {
      t.ok(names('table').includes(table), table);
    }
    t.ok(names('columnheader').includes('New one waits'));
    t.ok(names('rowheader').some((name) => name.startsWith('acme interactive')));
    const [minute = '', ...ranges] = names('radio');
    t.match(minute, /^last (minute|\d+ s)$/);
    t.strictSame(ranges, ['since start']);
    t.ok(names('button').includes('Theme: auto'));
    t.ok(names('link').includes('To the models'));
    const nameless = tree.filter(
      ({ role, name }) => /^(image|button|link|radio|table|textbox)$/.test(role) && name === '',
    );
    t.strictSame(nameless, []);
  });

  await t.test('announcements do not change while numbers do', async (t) => {
    await tab.value(`window.said = 0; new MutationObserver(() => { window.said += 1; })
      .observe(document.getElementById('news'), { childList: true, characterData: true, subtree: true });`);
    const feed = await FeedReader.open(operatorsPort);
    for (let i = 0; i < 8; i += 1) await feed.next();
    feed.close();
    t.equal(await tab.value(`window.said`), 0);
    t.equal(
      await tab.value(
        `document.querySelectorAll('[aria-live]:not([aria-live=off]), [role=status], [role=alert]').length`,
      ),
      1,
    );
  });

  await t.test('every control is reachable and usable by keyboard, and its focus is visible', async (t) => {
    await tab.value(`document.activeElement.blur(); window.scrollTo(0, 0)`);
    const walked: string[] = [];
    for (let i = 0; i < 40; i += 1) {
      await tab.press('Tab');
      const at = await tab.value<string | null>(`(() => {
        const at = document.activeElement;
        if (at === document.body) return null;
        const drawn = at.matches('input[type=radio]') ? at.nextElementSibling : at;
        if (getComputedStyle(drawn).outlineStyle === 'none') return 'unseen ' + at.outerHTML;
        return at.tagName + ' ' + (at.textContent || at.value);
      })()`);
      if (at === null) break;
      walked.push(at);
    }
    t.equal(walked[0], 'A To the models');
    t.ok(walked.includes('INPUT minute') && walked.includes('BUTTON Theme: auto'), walked.join(' | '));
    t.ok(walked.includes('SUMMARY Seats as a table') && walked.includes('SUMMARY Time to first token as a table'));
    t.notOk(
      walked.some((each) => each.startsWith('unseen')),
      walked.join(' | '),
    );

    await tab.value(`document.querySelector('.skip').focus()`);
    await tab.press('Enter', 'Enter', '\r');
    await tab.until(`document.activeElement.id === 'models'`);
    await tab.value(`document.querySelector('input[value=minute]').focus()`);
    await tab.press('ArrowRight');
    await tab.until(`document.querySelector('[role=img][aria-label^="Time to first token, since start"]')`);
    await tab.press('ArrowLeft');
    await tab.value(`document.querySelector('summary').focus()`);
    await tab.press('Enter', 'Enter', '\r');
    await tab.until(`document.querySelector('details[open] tbody tr')`);
    const feed = await FeedReader.open(operatorsPort);
    for (let i = 0; i < 4; i += 1) await feed.next();
    feed.close();
    t.ok(await tab.value(`document.querySelector('details').open`), 'updates leave it open');
    t.equal(await tab.value(`document.activeElement.tagName`), 'SUMMARY', 'and keep the focus');
  });

  await t.test('dark and light, as the system or the reader chooses; all text is readable', async (t) => {
    const ground = `getComputedStyle(document.documentElement).backgroundColor`;
    await media(tab, 'prefers-color-scheme', 'dark');
    const dark = await tab.value(ground);
    t.strictSame(await tab.value(lowContrast), [], 'dark');
    t.strictSame(await tab.value(paleShapes), [], 'and so are seats and bars');
    await media(tab, 'prefers-color-scheme', 'light');
    const light = await tab.value(ground);
    t.not(dark, light);
    t.strictSame(await tab.value(lowContrast), [], 'light');
    t.strictSame(await tab.value(paleShapes), []);
    await tab.value(`document.getElementById('theme').focus()`);
    await tab.press(' ', 'Space', ' ');
    t.equal(await tab.value(`document.getElementById('theme').textContent`), 'Theme: dark');
    t.equal(await tab.value(ground), dark, 'against the system');
    await tab.goto(urlOf(operatorsPort));
    t.equal(await tab.value(ground), dark, 'and kept');
  });

  await t.test('on a narrow screen nothing scrolls sideways', async (t) => {
    await tab.resize(PHONE);
    await tab.until(`document.querySelectorAll('.seat[data-seat]').length === 10`);
    const over = `document.documentElement.scrollWidth - document.documentElement.clientWidth`;
    t.equal(await tab.value(over), 0);
    t.ok((await tab.value<number>(`document.documentElement.clientWidth`)) <= PHONE.width);
    const tables = await tab.value<string[]>(
      `[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)`,
    );
    t.strictSame(
      tables.filter((name) => name !== 'Engines'),
      [],
      'except one wide table, in its own frame',
    );
    await tab.value(`for (const closed of document.querySelectorAll('details')) closed.open = true`);
    await tab.until(`document.querySelector('details[open] tbody tr')`);
    t.equal(await tab.value(over), 0, 'nor the opened details');
    await tab.resize({ ...PHONE, width: 320 });
    t.equal(await tab.value(over), 0, 'nor on the narrowest screen (WCAG 2.1, 1.4.10)');
    await tab.resize(PHONE);
    t.strictSame(await tab.value(underAim), [], 'touch targets are large enough');
    await tab.resize(DESK);
  });

  await t.test('with reduced motion nothing is animated', async () => {
    const motion = `getComputedStyle(document.querySelector('.seat[data-seat][data-state=prefilling]'), '::after').animationName`;
    await media(tab, 'prefers-reduced-motion', 'no-preference');
    await tab.until(`document.querySelector('.seat[data-seat][data-state=prefilling]') && ${motion} === 'walk'`);
    await media(tab, 'prefers-reduced-motion', 'reduce');
    await tab.until(`document.querySelector('.seat[data-seat][data-state=prefilling]') && ${motion} === 'none'`);
  });

  await t.test('with forced colours seats and bars stay visible, and so does the selected theme', async (t) => {
    const ground = (selector: string): string =>
      `getComputedStyle(document.querySelector('${selector}')).backgroundColor`;
    await tab.until(`document.querySelector('.seat[data-seat][data-state=decoding]')`);
    await media(tab, 'forced-colors', 'active');
    t.not(await tab.value(ground('.bar i')), await tab.value(ground('.card')));
    await tab.until(
      `document.querySelector('.seat[data-seat][data-state=decoding]') && ` +
        `${ground('.seat[data-seat][data-state=decoding]')} !== ${ground('.card')}`,
    );
    const outline = (state: string): string =>
      `getComputedStyle(document.querySelector('.choices input${state} + span')).outlineStyle`;
    t.equal(await tab.value(outline(':checked')), 'solid');
    t.equal(await tab.value(outline(':not(:checked)')), 'none');
    await media(tab, 'forced-colors', 'none');
  });

  await t.test('once it is idle, its numbers equal those of /metrics and /admission', async (t) => {
    await harness.end();
    await harness.sidecar.reaches('ra_sidecar_seats_busy', 0);
    await harness.sidecar.reaches('ra_sidecar_streams_running', 0);
    await harness.sidecar.reaches('ra_sidecar_spool_unsynced_records', 0);
    await harness.sidecar.reaches('http_server_active_requests', 0, { http_request_method: 'POST' });
    await tab.value(`document.querySelector('input[value=start]').click()`);
    const read = async (path: string): Promise<string> =>
      (await fetch(`http://127.0.0.1:${operatorsPort}${path}`)).text();
    const feed = await FeedReader.open(operatorsPort);
    const { snapshot, page } = await atRest(feed, () => read('/metrics'));
    feed.close();
    sameNumbers(t, snapshot, page, JSON.parse(await read('/admission')));

    const shown = (label: string): string =>
      `document.querySelector('[role=img][aria-label^=${JSON.stringify(label)}]').ariaLabel`;
    const firsts = await harness.sidecar.metric('gen_ai_server_time_to_first_token_seconds_count');
    await tab.until(`${shown('Time to first token')}.includes(': ${firsts.toLocaleString('en')} values')`);
    const gaps = await harness.sidecar.metric('ra_sidecar_inter_token_seconds_count', { model: CHAT });
    await tab.until(`${shown('Time between tokens')}.includes(': ${gaps.toLocaleString('en')} values')`);
    const full = await harness.sidecar.metric('ra_sidecar_refusals_total', { model: CHAT, reason: 'predicted' });
    const row = `[...document.querySelectorAll('tr')].find((row) => row.cells[0].textContent === 'would wait too long')`;
    t.equal(await tab.value(`${row}?.cells[2].textContent ?? '0'`), full.toLocaleString('en'));
  });

  t.strictSame(tab.complaints, [], 'its policy blocked nothing, and nothing was thrown');
  const elsewhere = tab.requested.filter((url) => !url.startsWith(urlOf(operatorsPort)));
  t.strictSame(
    elsewhere.filter((url) => url !== 'about:blank'),
    [],
    'it sent requests only to the sidecar',
  );
});
