// The engine processes of a model that has several.
import { element, fill, Keyed, mark, rowOf, scrolling, tableOf } from './dom.js';
import { count } from './text.js';

/** @typedef {import('../views.js').ModelView} ModelView */
/** @typedef {ModelView['engine']['replicas'][number]} ReplicaState */

/** Made once per model. */
export class Replicas {
  /** @type {HTMLElement} */
  element;
  /** @type {Keyed<{ readonly at: number, readonly replica: ReplicaState }, HTMLTableRowElement>} */
  #rows;

  /** @param {string} model */
  constructor(model) {
    const { table, body } = tableOf(`Replicas of ${model}`, [
      'Replica',
      'State',
      'Held',
      'Seats',
      'Restarts',
      'Weights',
    ]);
    this.#rows = new Keyed(
      body,
      ({ at }) => at,
      () => rowOf(5),
      (row, { at, replica }) => {
        const { state, problem, busy, seats, restarts, weights } = replica;
        const how = problem === null ? state : `${state}: ${problem}`;
        fill(row, [String(at), how, count(busy), count(seats), count(restarts), weights ?? '–']);
        mark(row, 'data-tone', state === 'ready' || state === 'unloaded' ? 'plain' : state === 'lost' ? 'bad' : 'warn');
      },
    );
    this.element = element(
      'section',
      { class: 'part', 'aria-label': `Replicas of ${model}` },
      element('h3', {}, 'Replicas'),
      scrolling(table),
    );
  }

  /** @param {ModelView} model */
  show({ engine: { replicas } }) {
    this.element.hidden = replicas.length < 2;
    this.#rows.show(replicas.map((replica, at) => ({ at, replica })));
  }
}
