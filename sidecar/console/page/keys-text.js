// What the keys' view says of keys, and what its forms send.

/** @typedef {import('../../api/keys-page.js').KeyView} KeyView */
/** @typedef {import('../../api/keys-page.js').AccountView} AccountView */

export const CLASSES = /** @type {const} */ (['interactive', 'standard', 'batch']);
export const GROUPS = /** @type {const} */ (['chat', 'decisions', 'embeddings', 'models']);
export const ROUTES = /** @type {const} */ (['chat', 'decisions', 'systemone', 'embeddings', 'rerank', 'batch']);
export const TIERS = /** @type {const} */ (['flex', 'priority']);

/** The entitlement `usage`, and what it lets the key see. */
export const USAGES = /** @type {const} */ ([
  ['', 'its own usage'],
  ['account', 'usage and balance of its account'],
]);

/** Tokens that a key or an account may use: field, label. */
export const QUOTAS = /** @type {const} */ ([
  ['tokensPerMinute', 'Tokens a minute'],
  ['tokensPerDay', 'Tokens a day'],
  ['tokensPerMonth', 'Tokens a month'],
]);

/** Of older entries, which have a weight. */
const CLASS_OF_WEIGHT = /** @type {Readonly<Record<number, string>>} */ ({
  16: 'interactive',
  4: 'standard',
  1: 'batch',
});

/**
 * @param {Pick<KeyView, 'class' | 'weight'>} key
 * @returns {string}
 */
export function classOf({ class: name, weight }) {
  return name ?? CLASS_OF_WEIGHT[weight ?? 4] ?? 'standard';
}

/**
 * Whether the key can be used or be made usable: not revoked, not past its end.
 *
 * @param {Pick<KeyView, 'state'>} key
 * @returns {boolean}
 */
export function isLive({ state }) {
  return state !== 'revoked' && state !== 'expired';
}

/**
 * A key's own limits: `chat 4 at once, 60 a minute`.
 *
 * @param {Pick<KeyView, 'limits'>} key
 * @returns {string}
 */
export function limitsInWords({ limits = {} }) {
  const groups = Object.entries(limits).flatMap(([group, { inFlight, perMinute }]) => {
    const parts = [limitInWords(inFlight, 'at once'), limitInWords(perMinute, 'a minute')].filter(
      (text) => text !== '',
    );
    return parts.length === 0 ? [] : [`${group} ${parts.join(', ')}`];
  });
  return groups.join('; ') || 'as configured';
}

/**
 * @param {number | undefined} value
 * @param {string} unit
 * @returns {string}
 */
function limitInWords(value, unit) {
  return value === undefined ? '' : `${value === 0 ? 'any number' : value.toLocaleString('en')} ${unit}`;
}

/**
 * What a key may use in an environment.
 *
 * @param {Pick<KeyView, 'entitlements'>} key
 * @param {string} environment
 * @returns {string}
 */
export function rightsInWords({ entitlements }, environment) {
  const entitlement = entitlements[environment];
  if (entitlement === undefined) return `nothing in ${environment}`;
  const { models, routes, cohort, usage, tiers } = entitlement;
  const named = models === 'all' ? 'all models' : models.length === 0 ? 'no model' : models.join(', ');
  return [
    named,
    ...(routes ? [`routes ${routes.join(', ') || 'none'}`] : []),
    ...(cohort === undefined ? [] : [`cohort ${cohort}`]),
    ...(tiers?.length ? [`tiers ${tiers.join(', ')}`] : []),
    ...quotasInWords(entitlement),
    ...(usage ? ['sees its account’s usage'] : []),
  ].join('; ');
}

/**
 * @param {AccountView['quotas']} quotas
 * @returns {string[]}
 */
export function quotasInWords(quotas) {
  return QUOTAS.flatMap(([field, label]) => {
    const value = quotas[field];
    return value === undefined ? [] : [`${value.toLocaleString('en')} ${label.toLowerCase()}`];
  });
}

/**
 * The quotas that a form asks for; those that are left empty are null.
 *
 * @param {Filled} form
 */
export function quotaValues(form) {
  return Object.fromEntries(QUOTAS.map(([field]) => [field, numberOf(form[field])]));
}

/**
 * A key that was rotated works until it expires, and another one has its place.
 *
 * @param {Pick<KeyView, 'state' | 'rotated'>} key
 * @returns {string}
 */
export function stateInWords({ state, rotated }) {
  return state === 'good' && rotated !== undefined ? 'replaced' : state;
}

/**
 * @param {Pick<KeyView, 'expires' | 'revoked'>} key
 * @returns {string}
 */
export function endInWords({ expires, revoked }) {
  if (revoked !== undefined) return `revoked ${minuteOf(revoked)}`;
  return expires === undefined ? 'never' : minuteOf(expires);
}

/**
 * @param {NonNullable<AccountView['balance']>} balance
 * @returns {string}
 */
export function balanceInWords({ granted, available, ageMs = 0 }) {
  const [all, left] = [Number(granted), Number(available)];
  if (all === 0 && left === 0) return 'no credit granted';
  const age = ageMs < 2000 ? '' : `, ${Math.round(ageMs / 1000)} s ago`;
  return `${left < 0 ? '−' : ''}${cents(Math.abs(left))} left of ${cents(all)} granted${age}`;
}

/** @param {number} usd */
function cents(usd) {
  return `$${usd.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/**
 * `2026-10-03 14:05`, UTC.
 *
 * @param {string} time ISO 8601
 * @returns {string}
 */
export function minuteOf(time) {
  return time.slice(0, 16).replace('T', ' ');
}

/** What a form holds, as text: '' is nothing. @typedef {Readonly<Record<string, string>>} Filled */

/**
 * The properties that a form asks for, as `PATCH /keys/{id}` takes them: what is left empty is null.
 *
 * @param {Filled} form
 * @param {Readonly<Record<'models' | 'routes' | 'tiers', readonly string[]>>} ticked
 * @param {string} environment
 */
export function patchOf(form, { models, routes, tiers }, environment) {
  const groups = GROUPS.map((group) => {
    const values = { inFlight: numberOf(form[`${group}-inFlight`]), perMinute: numberOf(form[`${group}-perMinute`]) };
    return /** @type {const} */ ([group, values.inFlight === null && values.perMinute === null ? null : values]);
  });
  return {
    class: form['class'] ?? 'standard',
    expires: form['expires'] === '' ? null : `${form['expires'] ?? ''}T00:00:00Z`,
    limits: groups.every(([, values]) => values === null) ? null : Object.fromEntries(groups),
    entitlements: {
      [environment]: {
        models: form['models'] === 'all' ? 'all' : models,
        routes: form['routes'] === 'all' ? null : routes,
        cohort: form['cohort'] === '' ? null : (form['cohort'] ?? null),
        usage: form['usage'] === 'account' ? 'account' : null,
        tiers: tiers.length === 0 ? null : tiers,
        ...quotaValues(form),
      },
    },
  };
}

/**
 * The same without what is null, as `POST /keys` takes it.
 *
 * @param {unknown} value
 * @returns {unknown}
 */
export function withoutNulls(value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const kept = Object.entries(value).filter(([, each]) => each !== null);
  return Object.fromEntries(kept.map(([name, each]) => [name, withoutNulls(each)]));
}

/**
 * What is no number is sent as it is, so that the sidecar says what is wrong with it.
 *
 * @param {string | undefined} text
 * @returns {number | string | null}
 */
function numberOf(text = '') {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  return /^\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/**
 * @param {FormData} form
 * @param {string} environment
 */
export function filledIn(form, environment) {
  const texts = Object.fromEntries([...form].map(([name, value]) => [name, String(value)]));
  const ticked = (/** @type {string} */ name) => form.getAll(`${name}-one`).map(String);
  return patchOf(texts, { models: ticked('models'), routes: ticked('routes'), tiers: ticked('tiers') }, environment);
}

/** @param {KeyView} key */
export function pathOf({ id }) {
  return `keys/${encodeURIComponent(id)}`;
}

/**
 * @param {number} status
 * @param {{ readonly error?: { readonly message?: string } }} body
 * @returns {string}
 */
export function messageOf(status, body) {
  return status === 0 ? 'The sidecar does not answer.' : (body.error?.message ?? `The sidecar answered ${status}.`);
}
