// The sidecar's own parts: engines, prompt hosts, the usage spool, this process.
import { counted, CountTable } from './counts.js';
import { element, fill, Keyed, mark, rowOf, say, scrolling, tableOf } from './dom.js';
import { hueOf } from './seats.js';
import { bytes, count, dollars, duration, seconds, some, storeFact } from './text.js';

/** @typedef {import('../views.js').Snapshot} Snapshot */
/** @typedef {import('../views.js').ModelView} ModelView */
/** @typedef {Snapshot['promptHosts'][number]} PromptHostState */
/** @typedef {readonly [name: string, value: string, tone: string]} Fact */

/** Made once. */
export class Upkeep {
  #today = new AccountTable('Usage of today', ['Requests', 'Input tokens', 'of these reused', 'Output tokens', 'Cost']);
  #batches = new AccountTable('Batches by account', ['Not ended', 'Lines', 'Answered']);
  /** @type {Keyed<ModelView, HTMLTableRowElement>} */
  #engines;
  /** @type {Keyed<PromptHostState, HTMLTableRowElement>} */
  #prompts;
  #errors = new CountTable('Errors by code', 'Code');
  /** @type {Keyed<Fact, HTMLDivElement>} */
  #usage;
  /** @type {Keyed<Fact, HTMLDivElement>} */
  #process;

  /** @param {HTMLElement} section */
  constructor(section) {
    const engines = tableOf('Engines', ['Model', 'State', 'Restarts', 'KV memory', 'Running', 'Kept', 'Prefix cache']);
    const prompts = tableOf('Prompt hosts', ['Bodies', 'State', 'Reading', 'Queued', 'Restarts']);
    this.#engines = new Keyed(engines.body, ({ model }) => model, makeEngine, changeEngine);
    this.#prompts = new Keyed(
      prompts.body,
      ({ lane }) => lane,
      () => rowOf(4),
      (row, host) => {
        const { lane, up, running, queued, restarts, problem } = host;
        fill(row, [lane, hostInWords(host), count(running), count(queued), count(restarts)]);
        mark(row, 'data-tone', up ? 'plain' : problem === undefined ? 'warn' : 'bad');
      },
    );
    const usage = element('dl');
    const process = element('dl');
    this.#usage = factsIn(usage);
    this.#process = factsIn(process);
    const parts = /** @type {const} */ ([
      ['Engines', scrolling(engines.table)],
      ['Prompt hosts', scrolling(prompts.table)],
      ['Errors by code', this.#errors.element],
      ['This process', process],
      ['Usage spool', usage],
    ]);
    const [first, ...others] = parts.map(([title, inside]) =>
      element('section', { class: 'part', 'aria-label': title }, element('h3', {}, title), inside),
    );
    if (first) section.append(first);
    section.append(
      element('div', { class: 'column' }, ...others.slice(0, 3)),
      element('div', { class: 'column' }, ...others.slice(3)),
      this.#today.element,
      this.#batches.element,
    );
  }

  /**
   * @param {Snapshot} snapshot
   * @param {Snapshot | undefined} minuteAgo Undefined: it is not known.
   * @param {string} span What the last minute is, in words: `last 12 s`.
   */
  show(snapshot, minuteAgo, span) {
    const errors = counted(snapshot.errors, minuteAgo?.errors, (code) => code);
    errors.sort((a, b) => b[3] - a[3]);
    this.#errors.show(errors, errors.length === 0 ? 'none so far' : '', span);
    this.#engines.show(snapshot.models);
    this.#prompts.show(snapshot.promptHosts);
    this.#usage.show(usageFacts(snapshot));
    const { usage, batches } = snapshot;
    this.#today.show(usage && usageLines(usage), usage ? `Usage of ${usage.day} (UTC) by account` : '');
    this.#batches.show(batches && batchLines(batches), 'Batches by account');
    this.#process.show([
      ['Up for', duration(snapshot.upMs), 'plain'],
      ['Memory, sidecar alone', bytes(snapshot.residentBytes), 'plain'],
      ['Streams open', count(snapshot.streams), 'plain'],
      ['Held for slow readers', bytes(snapshot.bufferedBytes), 'plain'],
      ...(snapshot.fleet ? [storeFact(snapshot.fleet)] : []),
    ]);
  }
}

/** A row for each account. Made once. */
class AccountTable {
  #title = element('h3', {});
  #none = element('p', { class: 'quantiles' }, 'none so far');
  /** @type {Keyed<UsageLine, HTMLTableRowElement>} */
  #lines;
  #table;

  /**
   * @param {string} label
   * @param {readonly string[]} columns After the account.
   */
  constructor(label, columns) {
    const { table, body } = tableOf(label, ['Account', ...columns]);
    this.#lines = new Keyed(
      body,
      ({ key }) => key,
      () => rowOf(columns.length),
      (row, { texts, hue }) => {
        fill(row, texts);
        mark(row, 'data-hue', hue);
      },
    );
    this.#table = scrolling(table);
    this.element = element('section', { class: 'part', 'aria-label': label }, this.#title, this.#none, this.#table);
  }

  /**
   * @param {readonly UsageLine[] | null} lines Null: the table is not shown.
   * @param {string} title
   */
  show(lines, title) {
    this.element.hidden = lines === null;
    if (lines === null) return;
    say(this.#title, title);
    this.#none.hidden = lines.length > 0;
    this.#table.hidden = lines.length === 0;
    this.#lines.show(lines);
  }
}

/**
 * @param {NonNullable<Snapshot['batches']>} batches
 * @returns {UsageLine[]}
 */
export function batchLines(batches) {
  return batches.map(({ account, batches: unfinished, lines, answered }) => ({
    key: `account ${account}`,
    texts: [account, count(unfinished), count(lines), count(answered)],
    hue: hueOf(account),
  }));
}

/**
 * @typedef {object} UsageLine
 * @property {string} key
 * @property {readonly string[]} texts
 * @property {number | string} hue
 */

/**
 * @param {NonNullable<Snapshot['usage']>} usage
 * @returns {UsageLine[]}
 */
export function usageLines({ accounts, others }) {
  const textsOf = (/** @type {Omit<typeof others, 'accounts'>} */ { requests, input, cached, output, usd }) => [
    ...[requests, input, cached, output].map(count),
    dollars(usd),
  ];
  const lines = accounts.map((line) => ({
    key: `account ${line.account}`,
    texts: [line.account === '' ? 'keys not told apart' : line.account, ...textsOf(line)],
    hue: hueOf(line.account),
  }));
  if (others.accounts === 0) return lines;
  return [...lines, { key: 'others', texts: [some(others.accounts, 'other'), ...textsOf(others)], hue: 'none' }];
}

/**
 * @param {Pick<Snapshot, 'at' | 'spool'>} snapshot
 * @returns {Fact[]}
 */
export function usageFacts({ at, spool }) {
  const { healthy, why, errors, lateCloses, lastSuccess } = spool;
  const health = healthy === null ? 'being read' : healthy ? 'healthy' : `unhealthy: ${why ?? ''}`;
  const ago = lastSuccess === 0 ? 'not yet' : `${duration(Math.max(0, at - lastSuccess * 1000))} ago`;
  return [
    ['Health', health, healthy === false ? 'bad' : 'good'],
    ['On disk', bytes(spool.bytes), 'plain'],
    ['Not yet durable', count(spool.unsynced), 'plain'],
    [
      'Oldest of these',
      seconds(spool.oldestUnsyncedSeconds),
      (spool.oldestUnsyncedSeconds ?? 0) > 1 ? 'warn' : 'plain',
    ],
    ['Errors, late closes', `${count(errors)}, ${count(lateCloses)}`, errors + lateCloses > 0 ? 'warn' : 'plain'],
    ...(delivers(spool) ? deliveryFacts(spool, ago) : []),
  ];
}

/**
 * Without a sink nothing is ever to be delivered.
 *
 * @param {Snapshot['spool']} spool
 * @returns {boolean}
 */
function delivers({ backlogBytes, delivered, retries, deadLetters, lastSuccess }) {
  return [backlogBytes, delivered, retries, deadLetters, lastSuccess].some((value) => (value ?? 0) > 0);
}

/**
 * @param {Snapshot['spool']} spool
 * @param {string} ago When the last delivery was.
 * @returns {Fact[]}
 */
function deliveryFacts(spool, ago) {
  const { deadLetters } = spool;
  return [
    ['To be delivered', bytes(spool.backlogBytes), 'plain'],
    ['Oldest to be delivered', seconds(spool.oldestSeconds), 'plain'],
    ['Delivered, retries', `${count(spool.delivered)}, ${count(spool.retries)}`, 'plain'],
    ['Dead letters', count(deadLetters), deadLetters > 0 ? 'bad' : 'plain'],
    ['Last delivery', ago, 'plain'],
  ];
}

/**
 * @param {HTMLElement} list
 * @returns {Keyed<Fact, HTMLDivElement>}
 */
function factsIn(list) {
  return new Keyed(
    list,
    ([name]) => name,
    ([name]) => element('div', {}, element('dt', {}, name), element('dd')),
    (made, [, value, tone]) => {
      const said = made.lastElementChild;
      if (!said) return;
      say(said, value);
      mark(said, 'data-tone', tone);
    },
  );
}

/**
 * @param {ModelView['engine']['cache']} cache
 * @returns {string}
 */
function cacheInWords({ bytes: held, hits, restoredTokens, evictions }) {
  const room = evictions['room'] ?? 0;
  const dropped = room === 0 ? '' : `, ${count(room)} dropped for room`;
  return `${bytes(held)}, ${some(hits, 'hit')} of ${some(restoredTokens, 'token')}${dropped}`;
}

/**
 * @param {Pick<PromptHostState, 'up' | 'problem'>} host
 * @returns {string}
 */
export function hostInWords({ up, problem }) {
  return up ? 'up' : problem === undefined ? 'starting' : `cannot start: ${problem}`;
}

/**
 * @param {Pick<ModelView['engine'], 'state' | 'problem' | 'readyInMs'>} engine
 * @returns {string}
 */
export function engineInWords({ state, problem, readyInMs }) {
  if (problem !== null) return `${state}: ${problem}`;
  if (state === 'cold') return `cold, ready in ${duration(readyInMs)}`;
  if (state === 'unloaded') return `unloaded, loads on request in about ${duration(readyInMs)}`;
  return state;
}

/** @returns {HTMLTableRowElement} */
function makeEngine() {
  const row = rowOf(6);
  row.cells[3]?.append(element('span', { class: 'kv', 'aria-hidden': 'true' }, element('i'), element('i')));
  row.cells[3]?.append(element('span'));
  return row;
}

/**
 * @param {HTMLTableRowElement} row
 * @param {ModelView} model
 */
function changeEngine(row, { model, engine }) {
  const { state, restarts, runningTokens, keptTokens, capacityTokens, cache } = engine;
  const [name, how, again, memory, running, kept, saved] = row.cells;
  if (!name || !how || !again || !memory || !running || !kept || !saved) return;
  say(name, model);
  say(how, engineInWords(engine));
  say(again, count(restarts));
  say(running, count(runningTokens));
  say(kept, count(keptTokens));
  say(saved, cacheInWords(cache));
  mark(row, 'data-tone', state === 'ready' || state === 'unloaded' ? 'plain' : state === 'lost' ? 'bad' : 'warn');
  const [bar, text] = memory.children;
  const shares = [runningTokens, keptTokens].map((tokens) => (capacityTokens === 0 ? 0 : tokens / capacityTokens));
  shares.forEach((share, i) => {
    const filled = bar?.children[i];
    if (filled instanceof HTMLElement) filled.style.width = `${(share * 100).toFixed(1)}%`;
  });
  const full = (shares[0] ?? 0) + (shares[1] ?? 0);
  if (text) say(text, capacityTokens === 0 ? '–' : `${Math.round(full * 100)} % of ${count(capacityTokens)}`);
}
