// The whole page: passes each snapshot from the feed to its parts, and handles the connection and the theme.
import { element, Keyed, known, mark, say } from './dom.js';
import { Feed } from './feed.js';
import { History } from './history.js';
import { Keys } from './keys.js';
import { ModelCard } from './model.js';
import { Sums } from './sums.js';
import { duration } from './text.js';
import { Upkeep } from './upkeep.js';

/** @typedef {import('../views.js').Snapshot} Snapshot */
/** @typedef {import('../views.js').ModelView} ModelView */

/** A snapshot older than this many intervals is marked as old. */
const OLD_INTERVALS = 3;

const THEMES = /** @type {const} */ (['auto', 'dark', 'light']);
const THEME = 'ra-sidecar console theme';

const state = known('state', HTMLElement);
const clock = known('clock', HTMLElement);
const news = known('news', HTMLElement);
const lost = known('lost', HTMLElement);
const lostText = known('lost-text', HTMLElement);
const again = known('again', HTMLButtonElement);
const askKey = known('ask-key', HTMLFormElement);
const keyField = known('key', HTMLInputElement);
const wrongKey = known('key-wrong', HTMLElement);
const modelList = known('models', HTMLElement);
const reasons = known('reasons', HTMLElement);
const choices = known('choices', HTMLFormElement);
const minuteText = known('minute-text', HTMLElement);
const themeButton = known('theme', HTMLButtonElement);
const upkeepSection = known('upkeep', HTMLElement);
const liveView = known('live', HTMLElement);
const keysView = known('keys', HTMLElement);

const history = new History();
const sums = new Sums(known('sums', HTMLElement));
const upkeep = new Upkeep(upkeepSection);
/** @type {Map<string, ModelCard>} */
const cards = new Map();
/** @type {Keyed<ModelView, HTMLElement>} */
const models = new Keyed(
  modelList,
  ({ model }) => model,
  (model) => {
    const card = new ModelCard(model);
    cards.set(model.model, card);
    return card.element;
  },
  (_, model) => cards.get(model.model)?.show(model, minuteAgo(model.model), history.span, range()),
);
/** @type {Keyed<string, HTMLLIElement>} */
const reasonLines = new Keyed(
  reasons,
  (text) => text,
  (text) => element('li', {}, text),
  () => undefined,
);

/** @type {Snapshot | undefined} */
let last;
/** When it arrived, on this page's clock. */
let cameAt = 0;
/** When the next connection attempt is made; undefined: connected, or a key is needed. */
/** @type {number | undefined} */
let retryAt;
let told = '';
/** Only reloading the page helps. */
let outdated = false;
/** The next snapshot is the first one of a connection. */
let connects = true;

const feed = new Feed('console/events', {
  picture: (snapshot) => {
    last = snapshot;
    cameAt = performance.now();
    history.add(snapshot);
    if (retryAt !== undefined) told = '';
    retryAt = undefined;
    lost.hidden = true;
    // The focus would otherwise fall back to the top of the page.
    const entered = askKey.contains(document.activeElement);
    askKey.hidden = true;
    if (connects && isOfKeys()) void keys.read();
    connects = false;
    if (entered) (isOfKeys() ? known('to-keys', HTMLElement) : modelList).focus({ preventScroll: true });
    show(snapshot);
    tick();
  },
  lost: (why, at) => {
    connects = true;
    retryAt = at;
    mark(lost, 'data-why', why);
    lost.hidden = false;
    tell(`${why} Trying again.`);
    tick();
  },
  key: (wrong) => {
    connects = true;
    retryAt = undefined;
    lost.hidden = true;
    askKey.hidden = false;
    mark(keyField, 'aria-invalid', String(wrong));
    // What is described by a hidden text is read too.
    mark(keyField, 'aria-describedby', wrong ? 'key-wrong key-note' : 'key-note');
    wrongKey.hidden = !wrong;
    tell(wrong ? (wrongKey.textContent ?? '') : 'The operators’ key is asked for.');
    keyField.focus();
    tick();
  },
  other: () => {
    const why = 'This page is of another version than the sidecar.';
    outdated = true;
    retryAt = undefined;
    lost.hidden = false;
    say(lostText, why);
    say(again, 'Reload');
    tell(`${why} Reload it.`);
    tick();
  },
});

const keys = new Keys(keysView, known('dialog', HTMLDialogElement), feed.call, announce);

/** Whether the page shows the keys, and not what happens now. */
function isOfKeys() {
  return location.hash === '#keys';
}

/** Shows the view that the address names. */
function showView() {
  const ofKeys = isOfKeys();
  liveView.hidden = ofKeys;
  keysView.hidden = !ofKeys;
  known('ranges', HTMLElement).hidden = ofKeys;
  for (const [id, here] of /** @type {const} */ ([
    ['to-live', !ofKeys],
    ['to-keys', ofKeys],
  ])) {
    if (here) mark(known(id, HTMLElement), 'aria-current', 'page');
    else known(id, HTMLElement).removeAttribute('aria-current');
  }
  if (ofKeys && !connects) void keys.read();
}

/** @returns {'minute' | 'start'} */
function range() {
  return new FormData(choices).get('range') === 'start' ? 'start' : 'minute';
}

/**
 * @param {string} model
 * @returns {ModelView | undefined}
 */
function minuteAgo(model) {
  return history.base?.models.find((each) => each.model === model);
}

/** @param {Snapshot} snapshot */
function show(snapshot) {
  const { status, reasons: why } = snapshot.readiness;
  reasonLines.show(why);
  reasons.hidden = why.length === 0;
  sums.show(snapshot, history, range());
  models.show(snapshot.models);
  upkeep.show(snapshot, history.base, history.span);
  say(minuteText, history.span);
  upkeepSection.hidden = false;
  const engines = snapshot.models.filter(({ engine }) => engine.state !== 'ready');
  const off = engines.map(({ model, engine }) => `engine of ${model} ${engine.state}`);
  tell([`Sidecar ${status}`, ...off].join(', '));
}

/**
 * The state of the last snapshot, which an old one no longer proves.
 *
 * @param {Snapshot} snapshot
 * @param {boolean} old
 */
function showState({ readiness: { status } }, old) {
  const text = old ? `was ${status}` : status;
  say(state, text);
  mark(state, 'data-tone', old ? 'quiet' : status === 'ready' ? 'good' : status === 'unhealthy' ? 'bad' : 'warn');
  const title = text === 'ready' ? 'ra-sidecar console' : `${text}: ra-sidecar console`;
  if (document.title !== title) document.title = title;
}

/**
 * Announces what the sidecar's state has become.
 *
 * @param {string} text
 */
function tell(text) {
  if (text === told) return;
  told = text;
  announce(text);
}

/**
 * Tells screen readers, also if the same was told before.
 *
 * @param {string} text
 */
function announce(text) {
  say(news, '');
  say(news, text);
}

/** Shows the state and age of the snapshot, and the time of the next attempt. */
function tick() {
  const now = performance.now();
  const ageMs = now - cameAt;
  const old = last !== undefined && (retryAt !== undefined || ageMs > OLD_INTERVALS * last.intervalMs);
  mark(document.documentElement, 'data-old', old ? 'yes' : 'no');
  if (last) showState(last, old);
  const age = duration(Math.floor(ageMs / 1000) * 1000);
  say(clock, !last ? 'no picture yet' : old ? `as of ${age} ago` : ageMs < 2000 ? 'live' : `live, ${age} ago`);
  if (retryAt === undefined) return;
  const wait = Math.ceil(Math.max(0, retryAt - now) / 1000);
  say(
    lostText,
    `${lost.getAttribute('data-why') ?? ''} ${wait === 0 ? 'Trying again …' : `Trying again in ${wait} s.`}`,
  );
}

/** @param {string | null} wanted */
function useTheme(wanted) {
  const theme = THEMES.find((each) => each === wanted) ?? 'auto';
  mark(document.documentElement, 'data-theme', theme);
  say(themeButton, `Theme: ${theme}`);
}

/** The theme is stored if the browser allows it. */
function keptTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

themeButton.addEventListener('click', () => {
  const now = THEMES.findIndex((each) => each === document.documentElement.getAttribute('data-theme'));
  const next = THEMES[(now + 1) % THEMES.length] ?? 'auto';
  useTheme(next);
  try {
    localStorage.setItem(THEME, next);
  } catch {
    // Otherwise it applies until the page is closed.
  }
});
choices.addEventListener('change', () => last && show(last));
choices.addEventListener('submit', (event) => event.preventDefault());
again.addEventListener('click', () => (outdated ? location.reload() : feed.start()));
askKey.addEventListener('submit', (event) => {
  event.preventDefault();
  const key = keyField.value.trim();
  keyField.value = '';
  if (key !== '') feed.use(key);
});

window.addEventListener('hashchange', showView);
document.addEventListener('visibilitychange', () => feed.hide(document.hidden));

useTheme(keptTheme());
showView();
setInterval(tick, 1000);
feed.start();
// A page that is opened in the background gets no event.
feed.hide(document.hidden);
