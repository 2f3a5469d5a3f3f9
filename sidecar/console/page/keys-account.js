// An account and its keys as a table, with what can be done to them.
import { element, Keyed, mark, rowOf, say, scrolling, tableOf } from './dom.js';
import { labelled, quotaFields } from './keys-form.js';
import {
  balanceInWords,
  classOf,
  endInWords,
  isLive,
  limitsInWords,
  QUOTAS,
  quotaValues,
  quotasInWords,
  rightsInWords,
  stateInWords,
} from './keys-text.js';
import { hueOf } from './seats.js';

/** @typedef {import('../../api/keys-page.js').KeysView} Answer */
/** @typedef {import('../../api/keys-page.js').KeyView} KeyView */
/** @typedef {import('../../api/keys-page.js').AccountView} AccountView */
/** @typedef {import('./keys-form.js').Refused} Refused */
/** @typedef {{ readonly account: AccountView; readonly keys: readonly KeyView[] }} Group */

/**
 * What asks for a change.
 *
 * @typedef {object} Asks
 * @property {(key: KeyView) => void} askEdit
 * @property {(key: KeyView) => void} askRotate
 * @property {(key: KeyView) => void} askRevoke
 * @property {import('./keys-form.js').Dialogs} dialogs
 * @property {(method: string, path: string, body: object, told: string) => Promise<Refused | undefined>} change
 * @property {(refused: Refused | undefined) => void} failed
 */

const COLUMNS = ['Key', 'State', 'Class', 'Limits', 'May use', 'Expires (UTC)', 'Last used', 'Actions'];

/** Of keys, by state. */
const TONES = /** @type {Readonly<Record<string, string>>} */ ({
  good: 'good',
  replaced: 'warn',
  frozen: 'warn',
  unattributed: 'warn',
});

/**
 * @param {Asks} keys
 * @param {AccountView} account
 */
function askFreeze(keys, { account, frozen }) {
  const path = `accounts/${encodeURIComponent(account)}/${frozen ? 'unfreeze' : 'freeze'}`;
  if (frozen) {
    void keys.change('POST', path, {}, `${account} is open again.`).then((refused) => keys.failed(refused));
    return;
  }
  keys.dialogs.ask({
    title: `Freeze ${account}?`,
    body: ['Requests with any of its keys are refused until it is opened again; those that run are finished.'],
    submit: 'Freeze',
    danger: true,
    send: () => keys.change('POST', path, {}, `${account} is frozen.`),
  });
}

/**
 * @param {Asks} keys
 * @param {AccountView} account
 */
function askQuotas(keys, { account, quotas }) {
  keys.dialogs.ask({
    title: `Quotas of ${account}`,
    body: ['Tokens of all its keys together; empty: no limit.', quotaFields(quotas)],
    submit: 'Save',
    send: (form) => {
      const texts = Object.fromEntries(QUOTAS.map(([field]) => [field, String(form.get(field))]));
      const path = `accounts/${encodeURIComponent(account)}`;
      return keys.change('PATCH', path, quotaValues(texts), `The quotas of ${account} were changed.`);
    },
  });
}

/**
 * @param {Asks} keys
 * @param {AccountView} account
 */
function askGrant(keys, { account }) {
  const id = element('input', { name: 'id', required: '', autocomplete: 'off', spellcheck: 'false' });
  const usd = element('input', { name: 'usd', required: '', inputmode: 'decimal', autocomplete: 'off', size: 12 });
  keys.dialogs.ask({
    title: `Grant credit to ${account}`,
    body: [
      labelled('Id', id, 'used once, such as the number of an invoice: sent twice, it is granted once'),
      labelled('US dollars', usd, 'such as 25.00; below zero to correct'),
    ],
    submit: 'Grant',
    send: (form) => {
      const body = { id: String(form.get('id')).trim(), usd: String(form.get('usd')).trim() };
      const path = `accounts/${encodeURIComponent(account)}/grants`;
      return keys.change('POST', path, body, `Credit was granted to ${account}.`);
    },
  });
}

/** One account with its keys. Made once. */
export class AccountGroup {
  #state = element('span', { class: 'pill', 'data-tone': 'warn', hidden: '' }, 'frozen');
  #about = element('span', { class: 'about' });
  #freeze = element('button', { type: 'button', class: 'small' });
  #grant = element('button', { type: 'button', class: 'small' }, 'Grant credit');
  /** @type {Keyed<KeyView, HTMLTableRowElement>} */
  #rows;
  /** @type {Group | undefined} */
  #last;
  #environment = '';

  /**
   * @param {string} name
   * @param {Asks} keys
   */
  constructor(name, keys) {
    const title = name === '' ? 'no account' : name;
    const quotas = element('button', { type: 'button', class: 'small' }, 'Quotas');
    const { table, body } = tableOf(`Keys of ${title}`, COLUMNS);
    this.#rows = new Keyed(
      body,
      ({ id }) => id,
      ({ id }) => makeRow(keys, () => this.#last?.keys.find((key) => key.id === id)),
      (row, key) => changeRow(row, key, this.#environment),
    );
    this.#freeze.addEventListener('click', () => this.#last && askFreeze(keys, this.#last.account));
    this.#grant.addEventListener('click', () => this.#last && askGrant(keys, this.#last.account));
    quotas.addEventListener('click', () => this.#last && askQuotas(keys, this.#last.account));
    mark(quotas, 'aria-label', `Quotas of ${title}`);
    mark(this.#grant, 'aria-label', `Grant credit to ${title}`);
    const does = element('span', { class: 'doing' }, quotas, this.#grant, this.#freeze);
    does.hidden = name === '';
    const heading = element('h3', { 'data-hue': hueOf(name) }, title);
    this.element = element(
      'section',
      { class: 'account', 'aria-label': title },
      element('header', {}, heading, this.#state, this.#about, does),
      scrolling(table),
    );
  }

  /**
   * @param {Group} group
   * @param {Answer | undefined} answer
   */
  show(group, answer) {
    this.#last = group;
    this.#environment = answer?.environment ?? '';
    const { account, frozen, balance, quotas } = group.account;
    this.#state.hidden = !frozen;
    say(this.#about, [...(balance ? [balanceInWords(balance)] : []), ...quotasInWords(quotas)].join('; '));
    say(this.#freeze, frozen ? 'Unfreeze' : 'Freeze');
    mark(this.#freeze, 'aria-label', `${frozen ? 'Unfreeze' : 'Freeze'} ${account}`);
    this.#grant.hidden = answer?.credit !== true;
    this.#rows.show(group.keys);
  }
}

/**
 * @param {Asks} keys
 * @param {() => KeyView | undefined} current
 */
function makeRow(keys, current) {
  const row = rowOf(COLUMNS.length - 1);
  COLUMNS.forEach((column, i) => mark(row.cells[i] ?? row, 'data-label', column));
  for (const cell of row.cells) cell.removeAttribute('class');
  const id = current()?.id ?? '';
  const does = /** @type {const} */ ([
    ['Edit', (/** @type {KeyView} */ key) => keys.askEdit(key)],
    ['Rotate', (/** @type {KeyView} */ key) => keys.askRotate(key)],
    ['Revoke', (/** @type {KeyView} */ key) => keys.askRevoke(key)],
  ]);
  for (const [text, act] of does) {
    const looks = text === 'Revoke' ? 'small danger' : 'small';
    const button = element('button', { type: 'button', class: looks, 'aria-label': `${text} ${id}` }, text);
    button.addEventListener('click', () => {
      const key = current();
      if (key) act(key);
    });
    row.cells[COLUMNS.length - 1]?.append(button);
  }
  row.cells[1]?.append(element('span', { class: 'pill' }));
  return row;
}

/**
 * @param {HTMLTableRowElement} row
 * @param {KeyView} key
 * @param {string} environment
 */
function changeRow(row, key, environment) {
  const [name, state, ...others] = row.cells;
  if (name) say(name, key.id);
  const pill = state?.firstElementChild;
  if (pill) {
    const said = stateInWords(key);
    say(pill, said);
    mark(pill, 'data-tone', TONES[said] ?? 'quiet');
  }
  const texts = [
    classOf(key),
    limitsInWords(key),
    rightsInWords(key, environment),
    endInWords(key),
    key.lastUsed ?? '–',
  ];
  others.slice(0, texts.length).forEach((cell, i) => say(cell, texts[i] ?? ''));
  const live = isLive(key);
  mark(row, 'data-tone', live ? 'plain' : 'quiet');
  for (const button of row.querySelectorAll('button')) {
    button.disabled = !live || (key.rotated !== undefined && button.textContent === 'Rotate');
  }
}
