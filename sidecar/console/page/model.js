// One model: its seats, its queue by account, its latencies and its refusals.
import { counted, CountTable } from './counts.js';
import { element, Keyed, mark, rowOf, say, scrolling, tableOf } from './dom.js';
import { HistogramPart } from './histogram.js';
import { since } from './history.js';
import { Replicas } from './replicas.js';
import { hueOf, Seats } from './seats.js';
import { bytes, count, duration, some } from './text.js';

/** @typedef {import('../views.js').ModelView} ModelView */
/** @typedef {ModelView['queue']['accounts'][number]} AccountLine */

/**
 * One line of the queue.
 *
 * @typedef {object} QueueLine
 * @property {string} key
 * @property {string} account
 * @property {boolean} named
 * @property {number} waiting
 * @property {string} label Its class.
 * @property {readonly string[]} texts All but the account.
 */

/** @type {Readonly<Record<number, string>>} */
const CLASSES = { 16: 'interactive', 4: 'standard', 1: 'batch' };

/**
 * Tones of an engine's states; all others are warnings. An unloaded one waits for a request as it should.
 *
 * @type {Readonly<Record<string, string>>}
 */
const TONES = { ready: 'good', unloaded: 'quiet', lost: 'bad' };

/** @type {Readonly<Record<string, string>>} */
const REASONS = {
  predicted: 'would wait too long',
  sessions: 'sessions keep the seats',
  standing: 'more comes than is served',
  patience: 'callers leave sooner',
  named: 'too late for its client',
  hopeless: 'too late to be of use',
  full: 'queue full',
  bytes: 'bodies too large together',
  dropped: 'made room for another',
  wait: 'waited too long',
  deadline: 'its deadline passed',
  drain: 'draining',
  'engine-lost': 'engine lost each time',
  'no-engine': 'model could not be loaded',
};

/** Made once per model. */
export class ModelCard {
  /** @type {HTMLElement} */
  element;
  #state = element('span', { class: 'pill' });
  #about = element('p', { class: 'about' });
  /** @type {Seats} */
  #seats;
  /** @type {Replicas} */
  #replicas;
  #firstToken;
  #interToken;
  #waits = element('p', { class: 'quantiles' });
  #note = element(
    'p',
    { class: 'note' },
    'Lead: seat time, by weight, that an account has had more than the one which is served next; empty while none waits.',
  );
  /** @type {Keyed<QueueLine, HTMLTableRowElement>} */
  #queue;
  #queueTable;
  #refusals;

  /** @param {ModelView} model */
  constructor({ model, kind }) {
    this.#seats = new Seats(model);
    this.#replicas = new Replicas(model);
    this.#firstToken = new HistogramPart('Time to first token', model);
    this.#interToken = new HistogramPart('Time between tokens', model);
    const queue = tableOf(`Queue of ${model} by account`, ['Account', 'Held', 'Waiting', 'Lead', 'New one waits']);
    this.#queue = new Keyed(queue.body, ({ key }) => key, makeLine, changeLine);
    this.#queueTable = scrolling(queue.table);
    this.#refusals = new CountTable(`Refusals of ${model}, and callers who left`, 'Reason');
    const part = (/** @type {string} */ label, /** @type {string} */ title, /** @type {(Node)[]} */ ...inside) =>
      element('section', { class: 'part', 'aria-label': `${label} of ${model}` }, element('h3', {}, title), ...inside);
    this.element = element(
      'article',
      { class: 'card model', 'aria-label': `Model ${model}` },
      element('header', {}, element('h2', {}, model), this.#state, this.#about),
      element(
        'div',
        { class: 'column' },
        this.#seats.element,
        this.#replicas.element,
        ...(kind === 'chat'
          ? [element('div', { class: 'pair' }, this.#firstToken.element, this.#interToken.element)]
          : []),
      ),
      element(
        'div',
        { class: 'column' },
        part('Queue', 'Queue by account', this.#waits, this.#queueTable, this.#note),
        part('Refusals', 'Refused, and left', this.#refusals.element),
      ),
    );
  }

  /**
   * @param {ModelView} model
   * @param {ModelView | undefined} minuteAgo Undefined: it is not known.
   * @param {string} span What the last minute is, in words: `last 12 s`.
   * @param {'minute' | 'start'} range
   */
  show(model, minuteAgo, span, range) {
    const { kind, engine, queue } = model;
    say(this.#state, engine.state);
    mark(this.#state, 'data-tone', TONES[engine.state] ?? 'warn');
    const context = engine.contextPerSeat === null ? [] : [`${count(engine.contextPerSeat)} tokens a seat`];
    const on = engine.runsOn === null ? [] : [`on ${engine.runsOn}`];
    const fairness = queue.fairness === null ? [] : [`fairness ${queue.fairness.toFixed(2)}`];
    const paused = queue.paused ? ['queue paused'] : [];
    const over = queue.overload.standing ? [overloadInWords(queue.overload.load)] : [];
    const left = median(queue.overload.patience);
    const drafts = draftsInWords(model.tokens);
    const about = [
      kind,
      some(queue.seats, 'seat'),
      ...context,
      ...on,
      ...fairness,
      ...drafts,
      ...over,
      ...left,
      ...paused,
    ];
    say(this.#about, about.join(' · '));
    this.#seats.show(model);
    this.#replicas.show(model);
    const lines = queueLines(queue);
    this.#queue.show(lines);
    this.#queueTable.hidden = lines.length === 0;
    // A single account leads no other.
    this.#note.hidden = queue.accounts.length < 2;
    const { waiting, waitingBytes } = queue;
    const waits = waiting === 0 ? 'nobody waits' : `${some(waiting, 'request')} waiting, ${bytes(waitingBytes)}`;
    say(this.#waits, [waits, ...sessionsInWords(queue.sessions), ...lentInWords(queue.lent)].join(' · '));
    const words = range === 'minute' ? span : 'since start';
    // Without an earlier snapshot there is no difference yet.
    const before = range === 'minute' ? (minuteAgo ?? model) : undefined;
    this.#firstToken.show(since(model.firstToken, before?.firstToken), words);
    this.#interToken.show(since(model.interToken, before?.interToken), words);
    const counts = [
      ...counted(model.refusals, minuteAgo?.refusals, (reason) => REASONS[reason] ?? reason),
      ...counted(model.cancels, minuteAgo?.cancels, (phase) => `left while ${phase}`),
    ];
    const met = counts.filter(([, , , all]) => all > 0);
    const none = counts.length - met.length;
    this.#refusals.show(met, none === 0 ? '' : met.length === 0 ? 'none so far' : some(none, 'other reason'), span);
  }
}

/**
 * @param {number} load Requests that come for each that is seated.
 * @returns {string}
 */
export function overloadInWords(load) {
  return `overloaded: ${load.toFixed(1)} requests come for each that gets a seat`;
}

/**
 * @param {Pick<ModelView['tokens'], 'drafted' | 'accepted'>} tokens
 * @returns {string[]}
 */
export function draftsInWords({ drafted, accepted }) {
  if (drafted === 0) return [];
  return [`${some(drafted, 'token')} drafted, ${Math.round((100 * accepted) / drafted)} % of them right`];
}

/**
 * What kept seats did since the start, once there was a further turn.
 *
 * @param {Pick<ModelView['queue']['sessions'], 'turns' | 'keeps'>} sessions
 * @returns {string[]}
 */
export function sessionsInWords({ turns, keeps }) {
  const further = turns.kept + turns.cold;
  if (further === 0) return [];
  const { expired, taken, lost } = keeps;
  const ends = `kept seats ended unused: ${count(expired)} expired, ${count(taken)} taken, ${count(lost)} lost`;
  return [`${count(turns.kept)} of ${count(further)} further turns of sessions had their seat, ${ends}`];
}

/**
 * @param {Pick<ModelView['queue']['lent'], 'seats' | 'waiting'>} lent
 * @returns {string[]}
 */
export function lentInWords({ seats, waiting }) {
  if (seats + waiting === 0) return [];
  return [`${some(seats, 'seat')} lent, ${some(waiting, 'request')} waiting for one`];
}

/**
 * How long the half of callers stays, where half of them are known to leave.
 *
 * @param {ModelView['queue']['overload']['patience']} patience
 * @returns {string[]}
 */
function median(patience) {
  const stream = patience['first-token'].p50;
  const whole = patience.end.p50;
  return [
    ...(stream === null ? [] : [`half stay ${duration(stream)} for a first token`]),
    ...(whole === null ? [] : [`half stay ${duration(whole)} for a reply`]),
  ];
}

/**
 * @param {Pick<ModelView['queue'], 'accounts' | 'others' | 'nextVirtualMs' | 'paused'>} queue
 * @returns {QueueLine[]}
 */
export function queueLines({ accounts, others, nextVirtualMs, paused }) {
  const named = accounts.map((line) => accountLine(line, nextVirtualMs, paused));
  if (others.accounts === 0) return named;
  const texts = [count(others.running), count(others.waiting), '', ''];
  const { waiting } = others;
  const account = some(others.accounts, 'other');
  return [...named, { key: 'others', account, named: false, waiting, label: '', texts }];
}

/**
 * @param {AccountLine} line
 * @param {number | null} nextMs The virtual time of the account that is served next. Null: none waits.
 * @param {boolean} paused A new request is refused.
 * @returns {QueueLine}
 */
function accountLine({ account, weight, running, kept, waiting, virtualMs, predictedWaitMs }, nextMs, paused) {
  const idle = running + kept + waiting === 0;
  const lead = idle || nextMs === null ? '' : duration(Math.max(0, virtualMs - nextMs));
  const wait = paused ? '–' : predictedWaitMs === 0 ? 'no wait' : duration(predictedWaitMs);
  const held = kept > 0 ? `${count(running)} + ${count(kept)} kept` : count(running);
  const texts = [held, count(waiting), lead, wait];
  const label = CLASSES[weight] ?? `weight ${weight}`;
  return { key: `account ${account}`, account, named: true, waiting, label, texts };
}

/** @returns {HTMLTableRowElement} */
function makeLine() {
  const row = rowOf(4);
  row.cells[0]?.append(element('span'), ' ', element('small'));
  return row;
}

/**
 * @param {HTMLTableRowElement} row
 * @param {QueueLine} line
 */
function changeLine(row, { account, named, waiting, label, texts }) {
  const [name, about] = row.cells[0]?.children ?? [];
  if (name) say(name, account);
  if (about) say(about, label);
  texts.forEach((text, i) => {
    const cell = row.cells[i + 1];
    if (cell) say(cell, text);
  });
  mark(row, 'data-hue', named ? hueOf(account) : 'none');
  mark(row, 'data-tone', waiting === 0 && texts[0] === '0' ? 'quiet' : 'plain');
}
