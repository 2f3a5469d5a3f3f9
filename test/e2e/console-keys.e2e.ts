/** The console’s keys in Debian’s Chromium: by keyboard, in both themes, on a phone. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { readKeyFile } from '../../sidecar/access/key-file.js';
import { Tab } from './cdp.js';
import { KeysConsole } from './keys-console.js';
import { lowContrast, underAim } from './page-checks.js';

const DESK = { width: 1280, height: 900 };
const PHONE = { width: 360, height: 740 };

const byName = (name: string): string => `document.querySelector('#keys [aria-label=${JSON.stringify(name)}]')`;
const heading = `document.querySelector('#dialog[open] h2')?.textContent`;
const focused = `document.activeElement`;

/** Presses Tab until the focused element fits. */
async function tabTo(tab: Tab, fits: string): Promise<void> {
  for (let i = 0; i < 80; i += 1) {
    if (await tab.value<boolean>(`(() => { const at = ${focused}; return ${fits}; })()`)) return;
    await tab.press('Tab');
  }
  throw new Error(`no Tab leads to ${fits}`);
}

const enter = (tab: Tab): Promise<void> => tab.press('Enter', 'Enter', '\r');

t.test('an operator’s work on keys, by keyboard', async (t) => {
  const { sidecar, secret, keys, ids } = await KeysConsole.start(t);
  const file = join(sidecar.dir, 'keys.json');
  const tab = await Tab.open(t, DESK);
  await tab.goto(`http://127.0.0.1:${sidecar.app.operatorsPort}/console`);
  await tab.until(`${focused}.id === 'key'`);
  await tab.type(secret);
  await enter(tab);
  await tab.until(`document.getElementById('clock').textContent === 'live'`);
  await tabTo(tab, `at.id === 'to-keys' || at === document.body`);
  await tab.value(`document.getElementById('to-keys').focus()`);
  await enter(tab);
  await tab.until(byName(`Edit ${ids.acme}`));
  t.equal(await tab.value(`location.hash`), '#keys');
  t.equal(await tab.value(`document.getElementById('live').hidden`), true);

  await t.test('keys by account, with what they may do; those that ended only when asked for', async (t) => {
    const text = await tab.value<string>(`document.getElementById('keys').innerText`);
    for (const part of [
      'acme',
      'birch-labs',
      'frozen',
      'interactive',
      'chat 4 at once, 60 a minute',
      'all models; tiers flex',
      '$2.50 left of $2.50',
    ])
      t.ok(text.includes(part), part);
    t.notOk(text.includes(ids.revoked));
    await tab.value(`document.querySelector('[name=ended]').focus()`);
    await tab.press(' ', 'Space', ' ');
    await tab.until(`document.getElementById('keys').innerText.includes(${JSON.stringify(ids.revoked)})`);
    await tab.press(' ', 'Space', ' ');
    await tab.value(`document.querySelector('[name=filter]').focus()`);
    await tab.type('birch');
    await tab.until(`document.querySelectorAll('.account').length === 1`);
    await tab.value(`document.querySelector('[name=filter]').select()`);
    await tab.press('Backspace');
    await tab.value(`document.querySelector('[name=filter]').value = ''`);
    await tab.value(`document.querySelector('.tools').dispatchEvent(new Event('input'))`);
    await tab.until(`document.querySelectorAll('.account').length > 1`);
  });

  let created = '';
  await t.test('create: what is wrong is said at its field; the key is shown once', async (t) => {
    await tabTo(tab, `at.textContent === 'Create key'`);
    await enter(tab);
    await tab.until(`${heading} === 'Create a key'`);
    t.equal(await tab.value(`${focused}.name`), 'account');
    await enter(tab);
    await tab.until(`document.querySelector('#dialog .problem').textContent.includes('account')`);
    t.equal(await tab.value(`${focused}.name + ' ' + ${focused}.getAttribute('aria-invalid')`), 'account true');
    await tab.type('dune');
    await tabTo(tab, `at.name === 'tiers-one' && at.value === 'priority'`);
    await tab.press(' ', 'Space', ' ');
    await tabTo(tab, `at.name === 'chat-perMinute'`);
    await tab.type('12');
    await enter(tab);
    await tab.until(`${heading} === 'New key of dune'`);
    created = await tab.value<string>(`document.getElementById('new-key').value`);
    t.match(created, /^ra-key-[\w-]{43}$/);
    t.equal(await tab.value(`${focused}.textContent`), 'Copy');
    await enter(tab);
    await tab.until(`/Copied|selected/.test(document.querySelector('#dialog [role=status]').textContent)`);
    await tab.press('Escape');
    t.equal(await tab.value(heading), 'New key of dune', 'Escape does not lose it');
    await tabTo(tab, `at.textContent === 'I have kept it'`);
    await enter(tab);
    await tab.until(`!document.getElementById('dialog').open`);
    t.equal(await tab.value(`${focused}.textContent`), 'Create key', 'the focus returns');
    t.notOk(await tab.value(`document.documentElement.outerHTML.includes(${JSON.stringify(created.slice(7))})`));
    await tab.until(`document.getElementById('news').textContent === 'The key was created.'`);
    t.match((await readKeyFile(file)).keys.at(-1), {
      account: 'dune',
      limits: { chat: { perMinute: 12 } },
      entitlements: { development: { tiers: ['priority'] } },
    });
  });

  await t.test('edit changes what was changed and nothing else', async (t) => {
    const stored = async () => (await readKeyFile(file)).keys.find(({ id }) => id === ids.acme);
    const before = await stored();
    await tab.value(`${byName(`Edit ${ids.acme}`)}.focus()`);
    await enter(tab);
    await tab.until(`${heading} === 'Edit ${ids.acme}'`);
    await tabTo(tab, `at.name === 'cohort'`);
    await enter(tab);
    await tab.until(`!document.getElementById('dialog').open`);
    t.strictSame(await stored(), before, 'saved as it was');
    await enter(tab);
    await tab.until(`${heading} === 'Edit ${ids.acme}'`);
    await tabTo(tab, `at.name === 'chat-inFlight'`);
    await tab.value(`${focused}.select()`);
    await tab.type('x');
    await enter(tab);
    await tab.until(`document.querySelector('#dialog .problem').textContent.includes('limits.chat.inFlight')`);
    t.equal(await tab.value(`${focused}.name`), 'chat-inFlight');
    await tab.value(`${focused}.select()`);
    await tab.type('9');
    await enter(tab);
    await tab.until(`!document.getElementById('dialog').open`);
    t.match(await stored(), { limits: { chat: { inFlight: 9, perMinute: 60 } }, expires: before?.expires });
  });

  await t.test('rotate, freeze, grant, revoke', async (t) => {
    await tab.value(`${byName(`Rotate ${ids.acme}`)}.focus()`);
    await enter(tab);
    await tab.until(`${heading} === 'Rotate ${ids.acme}'`);
    await tabTo(tab, `at.textContent === 'Rotate' && at.closest('dialog')`);
    await enter(tab);
    await tab.until(`${heading} === 'New key of acme'`);
    await tabTo(tab, `at.textContent === 'I have kept it'`);
    await enter(tab);
    await tab.until(`!document.getElementById('dialog').open && ${byName(`Rotate ${ids.acme}`)}.disabled`);
    t.equal(await tab.value(`${byName(`Rotate ${ids.acme}`)}.closest('tr').cells[1].textContent`), 'replaced');

    await tab.value(`${byName('Grant credit to acme')}.focus()`);
    await enter(tab);
    await tab.until(`${heading} === 'Grant credit to acme'`);
    await tab.type('inv-2');
    await tabTo(tab, `at.name === 'usd'`);
    await tab.type('10');
    await enter(tab);
    await tab.until(`document.getElementById('keys').innerText.includes('left of $12.50')`);

    await tab.value(`${byName('Freeze acme')}.focus()`);
    await enter(tab);
    await tab.until(`${heading} === 'Freeze acme?'`);
    t.equal(await tab.value(`${focused}.textContent`), 'Cancel', 'what cannot be undone is not what Enter does');
    await tabTo(tab, `at.textContent === 'Freeze'`);
    await enter(tab);
    await tab.until(byName('Unfreeze acme'));
    await tab.until(`!document.getElementById('dialog').open`);
    await enter(tab);
    await tab.until(byName('Freeze acme'));

    await tab.value(`${byName(`Revoke ${ids.acme}`)}.focus()`);
    await enter(tab);
    await tab.until(`${heading} === 'Revoke ${ids.acme}?'`);
    await tab.press('Escape');
    t.equal(await tab.value(`document.getElementById('dialog').open`), false, 'Escape does nothing');
    await enter(tab);
    await tabTo(tab, `at.textContent === 'Revoke' && at.closest('dialog')`);
    await enter(tab);
    await tab.until(`!${byName(`Revoke ${ids.acme}`)}`);
    t.ok((await readKeyFile(file)).keys.find(({ id }) => id === ids.acme)?.revoked);
  });

  await t.test('readable in both themes, and on a phone', async (t) => {
    const dialog = `document.getElementById('dialog')`;
    for (const theme of ['dark', 'light']) {
      await tab.value(`document.documentElement.setAttribute('data-theme', '${theme}')`);
      t.strictSame(await tab.value(lowContrast), [], theme);
      await tab.value(
        `[...document.querySelectorAll('#keys button')].find((at) => at.textContent === 'Create key').click()`,
      );
      await tab.until(`${dialog}.open`);
      t.strictSame(await tab.value(lowContrast), [], `${theme}, dialog`);
      await tab.value(`${dialog}.close()`);
    }
    for (const width of [PHONE.width, 320]) {
      await tab.resize({ ...PHONE, width });
      const over = `document.documentElement.scrollWidth - document.documentElement.clientWidth`;
      t.equal(await tab.value(over), 0, `${width}`);
      t.strictSame(await tab.value(underAim), []);
      await tab.value(
        `[...document.querySelectorAll('#keys button')].find((at) => at.textContent === 'Create key').click()`,
      );
      await tab.until(`${dialog}.open`);
      t.equal(await tab.value(`${dialog}.scrollWidth - ${dialog}.clientWidth`), 0, 'nor the dialog');
      t.strictSame(await tab.value(underAim), []);
      await tab.value(`${dialog}.close()`);
    }
  });

  const nameless = (await tab.accessibility()).filter(
    ({ role, name }) => /^(button|link|textbox|searchbox|checkbox|combobox|table)$/.test(role) && name === '',
  );
  t.strictSame(nameless, []);
  t.strictSame(tab.complaints, [], 'its policy blocked nothing, and nothing was thrown');
  const audit = await readFile(join(sidecar.dir, 'audit.jsonl'), 'utf8');
  t.match(
    audit.split('\n').flatMap((line) => (line === '' ? [] : (JSON.parse(line) as { action: string }).action)),
    ['create', 'change', 'change', 'rotate', 'grant', 'freeze', 'unfreeze', 'revoke'],
  );
  for (const text of [audit, await readFile(file, 'utf8'), JSON.stringify(sidecar.lines)]) {
    for (const key of [created, ...keys]) t.notOk(text.includes(key.slice(7)));
    t.notOk(text.includes(secret));
  }
});

t.test('without a secret the tab says what to set', async (t) => {
  const { sidecar } = await KeysConsole.start(t, { withSecret: false });
  const tab = await Tab.open(t, DESK);
  await tab.goto(`http://127.0.0.1:${sidecar.app.operatorsPort}/console#keys`);
  await tab.until(`document.querySelector('#keys .notice').textContent.includes('operators.secretFile')`);
  t.ok(await tab.value(`document.querySelector('#keys .tools').hidden`));
});
