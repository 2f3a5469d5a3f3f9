// The display of a model's seats: the account of each, and its phase.
import { element, fill, Keyed, mark, rowOf, say, scrolling, tableOf } from './dom.js';
import { age, duration, some } from './text.js';

/** @typedef {import('../views.js').ModelView} ModelView */
/** @typedef {import('../views.js').HolderView} HolderView */

/**
 * @typedef {object} Seat
 * @property {number} number
 * @property {HolderView | undefined} holder
 * @property {'free' | 'away'} empty What it is without a holder. `away`: no engine gives it.
 */

/** More seats than this are drawn small, without text. */
const WORDED = 32;

/** Colours that distinguish accounts; the table has their names. */
const HUES = 8;

/** @type {Readonly<Record<HolderView['state'], string>>} */
const STATES = { starting: 'starting', prefilling: 'prefill', decoding: 'decode' };

const LEGEND = /** @type {const} */ ([
  ['decoding', 'decode'],
  ['prefilling', 'prefill'],
  ['starting', 'starting'],
  ['free', 'free'],
  ['away', 'away'],
]);

/** Accounts whose colour is kept; past that colours are assigned anew. */
const REMEMBERED = 1000;

/** @type {Map<string, number>} */
const hues = new Map();

/**
 * The colour of an account: the first eight differ.
 *
 * @param {string} account
 * @returns {number}
 */
export function hueOf(account) {
  let hue = hues.get(account);
  if (hue === undefined) {
    if (hues.size >= REMEMBERED) hues.clear();
    hue = hues.size % HUES;
    hues.set(account, hue);
  }
  return hue;
}

/**
 * @param {Pick<ModelView['queue'], 'paused'>} queue
 * @returns {Seat['empty']}
 */
function emptyOf({ paused }) {
  return paused ? 'away' : 'free';
}

/**
 * The text alternative of the display.
 *
 * @param {{ queue: Pick<ModelView['queue'], 'seats' | 'kept' | 'paused'>, holders: ModelView['holders'] }} model
 * @returns {string}
 */
export function seatsInWords({ queue, holders }) {
  const held = { starting: 0, prefilling: 0, decoding: 0 };
  for (const { state, seats } of holders) held[state] += seats.length;
  const busy = held.starting + held.prefilling + held.decoding;
  const states = /** @type {const} */ (['decoding', 'prefilling', 'starting'])
    .filter((state) => held[state] > 0)
    .map((state) => `${held[state]} ${STATES[state]}`);
  const kept = queue.kept > 0 ? [`${queue.kept} kept for sessions`] : [];
  const free = Math.max(0, queue.seats - busy - queue.kept);
  return [some(queue.seats, 'seat'), ...states, ...kept, `${free} ${emptyOf(queue)}`].join(', ');
}

/** Made once per model. */
export class Seats {
  /** @type {HTMLElement} */
  element;
  #picture = element('div', { class: 'seats', role: 'img' });
  /** @type {Keyed<Seat, HTMLElement>} */
  #cells;
  /** @type {Keyed<HolderView, HTMLTableRowElement>} */
  #rows;
  #empty = element('p', { class: 'quiet' }, 'Nobody holds a seat.');

  /** @param {string} model */
  constructor(model) {
    const { table, body } = tableOf(`Who holds seats of ${model}`, [
      'Account',
      'Seats',
      'Class',
      'State',
      'On its seat',
    ]);
    this.#cells = new Keyed(this.#picture, ({ number }) => number, makeCell, changeCell);
    this.#rows = new Keyed(
      body,
      ({ id }) => id,
      () => rowOf(4),
      (row, holder) => {
        const { account, seats, state, ageMs } = holder;
        fill(row, [account, seats.map((seat) => seat + 1).join(' '), classOf(holder), STATES[state], duration(ageMs)]);
      },
    );
    const legend = element(
      'ul',
      { class: 'legend', 'aria-hidden': 'true' },
      ...LEGEND.map(([state, text]) => element('li', {}, element('i', { class: 'seat', 'data-state': state }), text)),
    );
    this.element = element(
      'section',
      { class: 'part wide', 'aria-label': `Seats of ${model}` },
      element('h3', {}, 'Seats'),
      this.#picture,
      legend,
      element('details', {}, element('summary', {}, 'Seats as a table'), this.#empty, scrolling(table)),
    );
  }

  /** @param {ModelView} model */
  show(model) {
    const { queue, holders } = model;
    /** @type {Map<number, HolderView>} */
    const held = new Map();
    for (const holder of holders) for (const seat of holder.seats) held.set(seat, holder);
    const shown = Math.max(queue.seats, ...[...held.keys()].map((seat) => seat + 1));
    const empty = emptyOf(queue);
    this.#cells.show(Array.from({ length: shown }, (_, number) => ({ number, holder: held.get(number), empty })));
    this.#rows.show(holders);
    this.#empty.hidden = holders.length > 0;
    mark(this.#picture, 'data-size', shown > WORDED ? 'small' : 'worded');
    mark(this.#picture, 'aria-label', seatsInWords(model));
  }
}

/**
 * @param {Seat} seat
 * @returns {HTMLElement}
 */
function makeCell({ number }) {
  return element('div', { class: 'seat', 'data-seat': number + 1 }, element('b'), element('span'));
}

/**
 * @param {HTMLElement} cell
 * @param {Seat} seat
 */
function changeCell(cell, { number, holder, empty }) {
  const [name, state] = cell.children;
  mark(cell, 'data-state', holder?.state ?? empty);
  mark(cell, 'data-hue', holder ? hueOf(holder.account) : 'none');
  mark(cell, 'title', `Seat ${number + 1}: ${holder ? holderInWords(holder) : empty}`);
  if (name) say(name, holder?.account ?? String(number + 1));
  if (state) say(state, holder ? `${STATES[holder.state]}, ${age(holder.ageMs)}` : empty);
}

/**
 * The time is that of the seat, of which the phase is only the present part.
 *
 * @param {Pick<HolderView, 'account' | 'class' | 'lent' | 'state' | 'ageMs'>} holder
 * @returns {string}
 */
export function holderInWords(holder) {
  const { account, state, ageMs } = holder;
  return `${account} (${classOf(holder)}), ${STATES[state]}, ${duration(ageMs)} on its seat`;
}

/**
 * @param {Pick<HolderView, 'class' | 'lent'>} holder
 * @returns {string}
 */
function classOf({ class: label, lent }) {
  return lent ? `${label}, lent` : label;
}
