// The dialogs of the keys' view: one at a time, in the page's one <dialog>. A dialog closes when the sidecar has done what it asks for,
// and otherwise says why not.
import { element, say } from './dom.js';
import { classOf, CLASSES, GROUPS, QUOTAS, ROUTES, TIERS, USAGES } from './keys-text.js';

/** @typedef {import('../../api/keys-page.js').KeyView} KeyView */

/**
 * What the sidecar refused: its message, and the field that it is about.
 *
 * @typedef {{ readonly message: string; readonly param: string | null }} Refused
 */

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {readonly (Node | string)[]} body
 * @property {string} submit What the button says.
 * @property {boolean} [danger] It cannot be undone.
 * @property {(form: FormData) => Promise<Refused | undefined>} send Undefined: it is done.
 */

const NUMBER = { inputmode: 'numeric', autocomplete: 'off', size: 8 };

export class Dialogs {
  #dialog;
  /** A new key is on the page, and would be lost. */
  #holdsKey = false;

  /** @param {HTMLDialogElement} dialog */
  constructor(dialog) {
    this.#dialog = dialog;
    dialog.addEventListener('cancel', (event) => {
      if (this.#holdsKey) event.preventDefault();
    });
    dialog.addEventListener('close', () => {
      this.#holdsKey = false;
      // A key must not stay in the page.
      dialog.replaceChildren();
    });
  }

  /** @param {Question} question */
  ask({ title, body, submit, danger = false, send }) {
    const problem = element('p', { class: 'problem', role: 'alert' });
    const cancel = element('button', { type: 'button' }, 'Cancel');
    const done = element('button', { type: 'submit', class: danger ? 'danger' : 'main' }, submit);
    const form = element(
      'form',
      { autocomplete: 'off', novalidate: '' },
      element('h2', { id: 'dialog-title' }, title),
      ...body.map((part) => (typeof part === 'string' ? element('p', {}, part) : part)),
      problem,
      element('p', { class: 'doing' }, cancel, done),
    );
    cancel.addEventListener('click', () => this.#dialog.close());
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (done.disabled) return;
      done.disabled = true;
      say(problem, '');
      for (const field of form.querySelectorAll('[aria-invalid]')) field.removeAttribute('aria-invalid');
      void send(new FormData(form)).then((refused) => {
        done.disabled = false;
        // The next dialog, with the new key, may be open by now.
        if (!form.isConnected) return;
        if (refused === undefined) this.#dialog.close();
        else this.#refused(form, problem, refused);
      });
    });
    this.#open(form);
    // Not the button that cannot be undone.
    const first = danger ? cancel : form.querySelector('input, select');
    (first instanceof HTMLElement ? first : done).focus();
  }

  /**
   * Shows a new key, until its reader says that it is kept.
   *
   * @param {string} title
   * @param {string} key
   */
  showKey(title, key) {
    const field = element('input', { id: 'new-key', readonly: '', value: key, spellcheck: 'false' });
    const copy = element('button', { type: 'button', class: 'main' }, 'Copy');
    const told = element('p', { role: 'status', class: 'note' });
    const done = element('button', { type: 'button' }, 'I have kept it');
    const body = element(
      'div',
      {},
      element('h2', { id: 'dialog-title' }, title),
      element('label', { for: 'new-key' }, 'The key. It is shown this once: the sidecar keeps only its hash.'),
      element('p', { class: 'copied' }, field, copy),
      told,
      element('p', { class: 'doing' }, done),
    );
    field.addEventListener('focus', () => field.select());
    copy.addEventListener('click', () => void copyOf(field).then((text) => say(told, text)));
    done.addEventListener('click', () => this.#dialog.close());
    this.#open(body);
    this.#holdsKey = true;
    copy.focus();
  }

  /** @param {HTMLElement} content */
  #open(content) {
    this.#dialog.replaceChildren(content);
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#dialog.scrollTop = 0;
  }

  /**
   * @param {HTMLFormElement} form
   * @param {HTMLElement} problem
   * @param {Refused} refused
   */
  #refused(form, problem, { message, param }) {
    say(problem, message);
    const path = (param ?? '').replace(/^limits\./, '').split('.');
    const names = [path.join('-'), path.at(-1) ?? ''];
    const field = names.map((name) => form.elements.namedItem(name)).find((each) => each instanceof HTMLElement);
    if (field instanceof HTMLElement) {
      field.setAttribute('aria-invalid', 'true');
      field.focus();
    } else problem.scrollIntoView({ block: 'nearest' });
  }
}

/**
 * @param {HTMLInputElement} field
 * @returns {Promise<string>} What is told.
 */
async function copyOf(field) {
  field.select();
  try {
    // Not there on a page of another machine without TLS.
    await navigator.clipboard.writeText(field.value);
    return 'Copied.';
  } catch {
    field.focus();
    return 'The browser does not allow it: the key is selected, copy it with Ctrl+C or ⌘C.';
  }
}

/**
 * A field with its label.
 *
 * @param {string} label
 * @param {HTMLElement} field
 * @param {string} [note]
 */
export function labelled(label, field, note) {
  const text = element('span', {}, label);
  return element('label', { class: 'field' }, text, field, ...(note === undefined ? [] : [element('small', {}, note)]));
}

/**
 * @param {string} name
 * @param {readonly (readonly [value: string, text: string])[]} options
 * @param {string} chosen
 */
export function choice(name, options, chosen) {
  const select = element('select', { name });
  for (const [value, text] of options)
    select.append(element('option', value === chosen ? { value, selected: '' } : { value }, text));
  return select;
}

/**
 * A box to tick for each name.
 *
 * @param {string} name
 * @param {string} title
 * @param {readonly string[]} known
 * @param {readonly string[]} chosen
 */
function boxes(name, title, known, chosen) {
  const group = element('div', { class: 'ticks', role: 'group', 'aria-label': title });
  for (const each of new Set([...known, ...chosen])) {
    const on = chosen.includes(each);
    const tick = element('input', { type: 'checkbox', name: `${name}-one`, value: each, ...(on && { checked: '' }) });
    group.append(element('label', { class: 'tick' }, tick, element('span', {}, each)));
  }
  return group;
}

/**
 * All of something, or those that are ticked.
 *
 * @param {string} name
 * @param {string} title
 * @param {string} all What all are called.
 * @param {readonly string[]} known
 * @param {'all' | readonly string[]} chosen
 */
function ticks(name, title, all, known, chosen) {
  const box = boxes(name, `Which ${title.toLowerCase()}`, known, chosen === 'all' ? [] : chosen);
  const select = choice(
    name,
    [
      ['all', all],
      ['some', 'only these'],
    ],
    chosen === 'all' ? 'all' : 'some',
  );
  const show = () => (box.hidden = select.value === 'all');
  select.addEventListener('change', show);
  show();
  return element('div', { class: 'field' }, element('label', {}, element('span', {}, title), select), box);
}

/**
 * The fields of a key's properties. `key`: undefined: of a new one.
 *
 * @param {KeyView | undefined} key
 * @param {string} environment
 * @param {readonly string[]} models
 */
export function propertyFields(key, environment, models) {
  const entitlement = key?.entitlements[environment];
  const limits = GROUPS.map((group) => {
    const own = key?.limits?.[group] ?? {};
    const value = (/** @type {'inFlight' | 'perMinute'} */ unit) =>
      element('input', {
        ...NUMBER,
        name: `${group}-${unit}`,
        value: own[unit] ?? '',
        'aria-label': `${group}, ${unit === 'inFlight' ? 'at once' : 'a minute'}`,
      });
    const cell = (/** @type {HTMLElement} */ field) => element('td', {}, field);
    return element('tr', {}, element('th', { scope: 'row' }, group), cell(value('inFlight')), cell(value('perMinute')));
  });
  const heads = ['Requests', 'at once', 'a minute'].map((text) => element('th', { scope: 'col' }, text));
  const chosen = key === undefined ? 'all' : (entitlement?.models ?? []);
  return element(
    'div',
    { class: 'fields' },
    labelled(
      'Class',
      choice(
        'class',
        CLASSES.map((name) => [name, name]),
        key ? classOf(key) : 'standard',
      ),
      'share of the seats',
    ),
    labelled(
      'Expires',
      element('input', { type: 'date', name: 'expires', value: key?.expires?.slice(0, 10) ?? '' }),
      'at the beginning of that day, UTC; empty: never',
    ),
    ticks('models', 'Models', 'all models', models, chosen),
    ticks('routes', 'Routes', 'all routes', ROUTES, entitlement?.routes ?? 'all'),
    ...quotaParts(entitlement ?? {}),
    labelled(
      'Cohort',
      element('input', { name: 'cohort', value: entitlement?.cohort ?? '' }),
      'of restricted models; empty: none',
    ),
    labelled('It may see', choice('usage', USAGES, entitlement?.usage ?? '')),
    element(
      'div',
      { class: 'field' },
      element('span', {}, 'Tiers'),
      boxes('tiers', 'Tiers', TIERS, entitlement?.tiers ?? []),
      element('small', {}, 'that it may ask for, besides the default one'),
    ),
    element(
      'div',
      { class: 'field wide' },
      element(
        'table',
        { class: 'limits' },
        element('caption', {}, 'Limits of requests'),
        element('thead', {}, element('tr', {}, ...heads)),
        element('tbody', {}, ...limits),
      ),
      element('small', {}, 'empty: as configured; 0: no limit'),
    ),
  );
}

/** @param {import('../../api/keys-page.js').AccountView['quotas']} quotas */
function quotaParts(quotas) {
  return QUOTAS.map(([field, label]) =>
    labelled(label, element('input', { ...NUMBER, name: field, value: quotas[field] ?? '' }), 'empty: no limit'),
  );
}

/**
 * The fields of an account's quotas.
 *
 * @param {import('../../api/keys-page.js').AccountView['quotas']} quotas
 */
export function quotaFields(quotas) {
  return element('div', { class: 'fields' }, ...quotaParts(quotas));
}
