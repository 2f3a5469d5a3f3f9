// Helpers for the page's elements, which are made once and then changed in place, so that focus, an open table and a
// selection survive updates. Text is never parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An element with attributes and children.
 *
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Readonly<Record<string, string | number>>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * The same for a drawing.
 *
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Readonly<Record<string, string | number>>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * Sets the text if it differs.
 *
 * @param {Element} where
 * @param {string} text
 */
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/**
 * @param {Element} where
 * @param {string} name
 * @param {string | number} value
 */
export function mark(where, name, value) {
  const text = String(value);
  if (where.getAttribute(name) !== text) where.setAttribute(name, text);
}

/**
 * Updates the children of `parent` to match `items`: known keys are changed in place, new ones made, others removed.
 *
 * @template I
 * @template {Element} E
 */
export class Keyed {
  /** @type {Map<string | number, E>} */
  #known = new Map();

  /**
   * @param {Element} parent
   * @param {(item: I) => string | number} key
   * @param {(item: I) => E} make
   * @param {(made: E, item: I) => void} change
   */
  constructor(parent, key, make, change) {
    this.parent = parent;
    this.key = key;
    this.make = make;
    this.change = change;
  }

  /** @param {readonly I[]} items */
  show(items) {
    /** @type {Map<string | number, E>} */
    const next = new Map();
    items.forEach((item, i) => {
      const key = this.key(item);
      const made = this.#known.get(key) ?? this.make(item);
      this.change(made, item);
      next.set(key, made);
      const at = this.parent.children[i] ?? null;
      if (at !== made) this.parent.insertBefore(made, at);
    });
    for (const [key, made] of this.#known) if (!next.has(key)) made.remove();
    this.#known = next;
  }
}

/**
 * A table with a caption, its head, and a body that is yours to fill.
 *
 * @param {string} caption
 * @param {readonly string[]} columns The first names the rows.
 * @returns {{ readonly table: HTMLTableElement; readonly body: HTMLTableSectionElement }}
 */
export function tableOf(caption, columns) {
  const body = element('tbody');
  const heads = columns.map((column, i) => element('th', { scope: 'col', ...(i > 0 && { class: 'number' }) }, column));
  const table = element(
    'table',
    {},
    element('caption', {}, caption),
    element('thead', {}, element('tr', {}, ...heads)),
  );
  table.append(body);
  return { table, body };
}

/**
 * A table that scrolls if there is not enough room, and is then reachable by keyboard.
 *
 * @param {HTMLTableElement} table
 * @returns {HTMLElement}
 */
export function scrolling(table) {
  const box = element('div', { class: 'scroll', role: 'group', 'aria-label': table.caption?.textContent ?? '' }, table);
  new ResizeObserver(() => {
    if (box.scrollWidth > box.clientWidth) box.setAttribute('tabindex', '0');
    else box.removeAttribute('tabindex');
  }).observe(box);
  return box;
}

/**
 * A row of such a table: its head and as many cells.
 *
 * @param {number} cells
 * @returns {HTMLTableRowElement}
 */
export function rowOf(cells) {
  const row = element('tr', {}, element('th', { scope: 'row' }));
  for (let i = 0; i < cells; i += 1) row.append(element('td', { class: 'number' }));
  return row;
}

/**
 * @param {HTMLTableRowElement} row
 * @param {readonly string[]} texts
 */
export function fill(row, texts) {
  texts.forEach((text, i) => {
    const cell = row.cells[i];
    if (cell) say(cell, text);
  });
}

/**
 * An element of the page that must exist.
 *
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} kind
 * @returns {E}
 */
export function known(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
}
