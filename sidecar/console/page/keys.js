// The keys' view: keys by account, what they may do, and what an operator does to them. It asks the sidecar when it is opened and after
// each change, and shows only what the sidecar has answered.
import { element, Keyed, say } from './dom.js';
import { AccountGroup } from './keys-account.js';
import { choice, Dialogs, labelled, propertyFields } from './keys-form.js';
import { filledIn, isLive, messageOf, pathOf, withoutNulls } from './keys-text.js';
import { some } from './text.js';

/** @typedef {import('../../api/keys-page.js').KeysView} Answer */
/** @typedef {import('../../api/keys-page.js').KeyView} KeyView */
/** @typedef {import('../../api/keys-page.js').AccountView} AccountView */
/** @typedef {import('./keys-form.js').Refused} Refused */
/** @typedef {{ readonly account: AccountView; readonly keys: readonly KeyView[] }} Group */

/** Keys of one answer, and the most that the sidecar gives. */
const PAGE = 100;
const MOST = 500;

const SECRET_NEEDED =
  'To manage keys here, set operators.secretFile to a file with a secret of 32 characters or more, and restart the sidecar. Until then: ra-sidecar keys --help.';

export class Keys {
  #call;
  #tell;
  dialogs;
  #about = element('p', { class: 'about' });
  #notice = element('p', { class: 'notice', role: 'alert', hidden: '' });
  #tools;
  #filter = element('input', { type: 'search', name: 'filter', placeholder: 'account or id', autocomplete: 'off' });
  #ended = element('input', { type: 'checkbox', name: 'ended' });
  #create = element('button', { type: 'button', class: 'main' }, 'Create key');
  #more = element('button', { type: 'button', hidden: '' }, 'Show more');
  #none = element('p', { class: 'quantiles', hidden: '' });
  #groups;
  /** @type {Answer | undefined} */
  #last;
  /** @type {Map<string, AccountGroup>} */
  #known = new Map();

  /**
   * @param {HTMLElement} section
   * @param {HTMLDialogElement} dialog
   * @param {import('./feed.js').Feed['call']} call
   * @param {(text: string) => void} tell Announces a change to screen readers.
   */
  constructor(section, dialog, call, tell) {
    this.#call = call;
    this.#tell = tell;
    this.dialogs = new Dialogs(dialog);
    const again = element('button', { type: 'button' }, 'Refresh');
    const list = element('div', { class: 'accounts' });
    this.#tools = element(
      'form',
      { class: 'tools', role: 'search', hidden: '' },
      element('label', {}, 'Filter ', this.#filter),
      element('label', { class: 'tick' }, this.#ended, element('span', {}, 'show revoked and expired')),
      element('span', { class: 'doing' }, again, this.#create),
    );
    section.append(
      element('header', {}, element('h2', {}, 'Keys'), this.#about),
      this.#notice,
      this.#tools,
      this.#none,
      list,
      this.#more,
    );
    /** @type {Keyed<Group, HTMLElement>} */
    this.#groups = new Keyed(
      list,
      ({ account }) => account.account,
      ({ account }) => {
        const group = new AccountGroup(account.account, this);
        this.#known.set(account.account, group);
        return group.element;
      },
      (_, group) => this.#known.get(group.account.account)?.show(group, this.#last),
    );
    this.#tools.addEventListener('submit', (event) => event.preventDefault());
    this.#tools.addEventListener('input', () => this.#show());
    again.addEventListener('click', () => void this.read().then(() => tell('Keys were read again.')));
    this.#create.addEventListener('click', () => this.#askCreate());
    this.#more.addEventListener('click', () => void this.#readMore());
  }

  /** Reads as many keys as are shown, and shows them. */
  async read() {
    const limit = Math.min(MOST, Math.max(PAGE, this.#last?.data?.length ?? 0));
    this.#take(await this.#call('GET', `keys?limit=${limit}`));
  }

  async #readMore() {
    const before = this.#last;
    const after = before?.data?.at(-1)?.id ?? '';
    const { status, body } = await this.#call('GET', `keys?limit=${PAGE}&after=${encodeURIComponent(after)}`);
    // A key that was removed from the file meanwhile is no place to go on from.
    if (status !== 200 || before?.data === undefined) return this.read();
    const known = new Set(before.accounts?.map(({ account }) => account));
    const accounts = [
      ...(before.accounts ?? []),
      ...body.accounts.filter((/** @type {AccountView} */ each) => !known.has(each.account)),
    ];
    this.#take({ status, body: { ...body, data: [...before.data, ...body.data], accounts } });
  }

  /** @param {Awaited<ReturnType<import('./feed.js').Feed['call']>>} answer */
  #take({ status, body }) {
    this.#last = status === 200 ? body : undefined;
    const managed = this.#last?.data !== undefined;
    this.#tools.hidden = !managed;
    const problem = status === 200 ? body.problem : messageOf(status, body);
    const why = !managed && status === 200 ? SECRET_NEEDED : problem === undefined ? '' : `The keys file: ${problem}`;
    say(this.#notice, status === 200 ? why : (problem ?? ''));
    this.#notice.hidden = this.#notice.textContent === '';
    const file = this.#last?.file ?? '';
    say(this.#about, this.#last ? `${some(this.#last.keys, 'key')} in ${file.slice(file.lastIndexOf('/') + 1)}` : '');
    this.#about.title = file;
    this.#show();
  }

  #show() {
    const { data = [], accounts = [], hasMore = false } = this.#last ?? {};
    const wanted = this.#filter.value.trim().toLowerCase();
    const shown = data.filter(
      (key) => (this.#ended.checked || isLive(key)) && `${key.account ?? ''}\n${key.id}`.toLowerCase().includes(wanted),
    );
    /** @type {Map<string, Group & { keys: KeyView[] }>} */
    const groups = new Map();
    for (const key of shown) {
      const name = key.account ?? '';
      const account = accounts.find((each) => each.account === name) ?? {
        account: name,
        frozen: false,
        quotas: {},
        balance: null,
      };
      const group = groups.get(name) ?? { account, keys: [] };
      groups.set(name, group);
      group.keys.push(key);
    }
    this.#groups.show([...groups.values()]);
    const left = data.length - shown.length;
    const nothing = data.length === 0 ? 'There is no key yet.' : 'No key is shown.';
    const hidden = left === 0 ? '' : ` ${some(left, 'key')} ${left === 1 ? 'is' : 'are'} not shown.`;
    say(this.#none, shown.length === 0 ? `${nothing}${hidden}` : '');
    this.#none.hidden = shown.length > 0 || this.#last?.data === undefined;
    this.#more.hidden = !hasMore;
  }

  /**
   * Sends a change, reads the keys again and says so.
   *
   * @param {string} method
   * @param {string} path
   * @param {object} body
   * @param {string} told
   * @param {string} [title] Of the dialog with the new key, if the answer has one.
   * @returns {Promise<Refused | undefined>}
   */
  async change(method, path, body, told, title = '') {
    const answer = await this.#call(method, path, body);
    if (answer.status < 200 || answer.status > 299)
      return { message: messageOf(answer.status, answer.body), param: answer.body.error?.param ?? null };
    if (answer.body.key !== undefined) this.dialogs.showKey(title, answer.body.key);
    await this.read();
    this.#tell(told);
    return undefined;
  }

  #askCreate() {
    const { environment = '', models = [], accounts = [] } = this.#last ?? {};
    const names = element(
      'datalist',
      { id: 'accounts' },
      ...accounts.map(({ account }) => element('option', { value: account })),
    );
    const name = element('input', {
      name: 'account',
      list: 'accounts',
      required: '',
      autocomplete: 'off',
      spellcheck: 'false',
    });
    this.dialogs.ask({
      title: 'Create a key',
      body: [
        labelled('Account', name, 'it pays, and its keys share its part of the seats'),
        names,
        propertyFields(undefined, environment, models),
      ],
      submit: 'Create',
      send: (form) => {
        const body = {
          account: String(form.get('account')).trim(),
          ...Object(withoutNulls(filledIn(form, environment))),
        };
        return this.change('POST', 'keys', body, 'The key was created.', `New key of ${body.account}`);
      },
    });
  }

  /** @param {KeyView} key */
  askEdit(key) {
    const { environment = '', models = [] } = this.#last ?? {};
    this.dialogs.ask({
      title: `Edit ${key.id}`,
      body: [`Key of ${key.account ?? 'no account'}, in ${environment}.`, propertyFields(key, environment, models)],
      submit: 'Save',
      send: (form) => {
        const { expires, ...patch } = filledIn(form, environment);
        // A time that the form does not show stays.
        const same = form.get('expires') === (key.expires?.slice(0, 10) ?? '');
        return this.change('PATCH', pathOf(key), same ? patch : { ...patch, expires }, `${key.id} was changed.`);
      },
    });
  }

  /** @param {KeyView} key */
  askRotate(key) {
    const hours = /** @type {const} */ ([
      ['0', 'no longer'],
      ['1', 'for an hour'],
      ['24', 'for a day'],
      ['168', 'for a week'],
    ]);
    this.dialogs.ask({
      title: `Rotate ${key.id}`,
      body: [
        `A new key of ${key.account ?? 'no account'} gets the rights and limits of this one.`,
        labelled('The old one works', choice('hours', hours, '24')),
      ],
      submit: 'Rotate',
      send: (form) => {
        const graceMs = Number(form.get('hours')) * 3_600_000;
        return this.change(
          'POST',
          `${pathOf(key)}/rotate`,
          { graceMs },
          `${key.id} was rotated.`,
          `New key of ${key.account ?? ''}`,
        );
      },
    });
  }

  /** @param {KeyView} key */
  askRevoke(key) {
    this.dialogs.ask({
      title: `Revoke ${key.id}?`,
      body: [
        `Requests with this key of ${key.account ?? 'no account'} are refused from now on; those that run are finished. It cannot be undone.`,
      ],
      submit: 'Revoke',
      danger: true,
      send: () => this.change('POST', `${pathOf(key)}/revoke`, {}, `${key.id} was revoked.`),
    });
  }

  /**
   * Says why something was refused that no dialog asked for.
   *
   * @param {Refused | undefined} refused
   */
  failed(refused) {
    if (refused === undefined) return;
    say(this.#notice, refused.message);
    this.#notice.hidden = false;
  }
}
