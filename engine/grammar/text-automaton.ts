/** What a schema requires of a text, as an automaton of few states. */
import { Languages, merged, type Language, type Span } from './text-language.js';
import { BEFORE, AFTER, LAST_CODE_POINT, patternLanguage } from './text-pattern.js';
import { WorkBudget } from './work.js';

const MAX_STATES = 512;
/** Steps of one text, about 6 ms. What takes more is not enforced. */
const MAX_TEXT_STEPS = 120_000;

/** Everything that one text has to satisfy. */
export interface TextForm {
  readonly patterns: readonly string[];
  readonly formats: readonly string[];
  /** In code points. */
  readonly least: number;
  readonly most: number;
  /** Texts that are excluded, and patterns of such texts. */
  readonly excludedTexts?: readonly string[];
  readonly excludedPatterns?: readonly string[];
}

export interface State {
  readonly ends: boolean;
  readonly next: readonly Transition[];
}

interface Transition {
  readonly spans: readonly Span[];
  readonly to: number;
}

/** The first state is where a text begins. None: there is no such text. */
export type Automaton = readonly State[];

/**
 * An automaton of the texts that `form` allows, as far as it is enforced. Unknown patterns and formats are ignored. Where there are too
 * many states, lengths are ignored, and then formats beside patterns. Undefined if nothing is enforced but that it is a text.
 */
export function textAutomaton(form: TextForm, work: WorkBudget): Automaton | undefined {
  const formats = [...new Set(form.formats.flatMap((name) => formatPattern(name) ?? []))];
  const [format, ...others] = formats;
  const alone = form.patterns.length + others.length === 0 && !form.excludedTexts && !form.excludedPatterns;
  if (format !== undefined && alone) return formatAutomaton(format);
  const made = ofRequest.get(work) ?? new Map<string, Automaton | undefined>();
  ofRequest.set(work, made);
  const key = JSON.stringify(form);
  if (!made.has(key)) made.set(key, firstOf(relaxedForms(form, formats), work));
  return made.get(key);
}

/** By the patterns of the formats that were asked for, which are few. */
const known = new Map<string, Automaton>();

/** Whatever the length: a format has one of its own. */
function formatAutomaton(format: string): Automaton | undefined {
  const form = { patterns: [format], formats: [], least: 0, most: Infinity };
  const automaton = known.get(format) ?? attempt(form, new WorkBudget());
  if (automaton) known.set(format, automaton);
  return automaton;
}

function relaxedForms(form: TextForm, formats: readonly string[]): TextForm[] {
  const patterns = [...form.patterns, ...formats];
  const uncounted = { least: 0, most: Infinity };
  const all = { ...form, patterns };
  const isCounted = form.least > 0 || form.most < Infinity;
  return [
    all,
    ...(isCounted ? [{ ...all, ...uncounted }] : []),
    ...(formats.length > 0 && form.patterns.length > 0 ? [{ ...form, ...uncounted }] : []),
  ];
}

function firstOf(forms: readonly TextForm[], work: WorkBudget): Automaton | undefined {
  for (const form of forms) {
    const automaton = attempt(form, work);
    if (automaton) return automaton;
  }
  return undefined;
}

/** Of one request, whose tools often have the same patterns. */
const ofRequest = new WeakMap<WorkBudget, Map<string, Automaton | undefined>>();

/** Whether a text satisfies `form`, as far as that is enforced. */
export function isText(text: string, form: TextForm, work: WorkBudget): boolean {
  const automaton = textAutomaton(form, work);
  if (automaton === undefined) return true;
  let at = automaton[0];
  for (const character of text) {
    work.spend(1);
    const point = character.codePointAt(0) ?? 0;
    const onward = at?.next.find(({ spans }) => spans.some(([low, high]) => low <= point && point <= high));
    at = onward && automaton[onward.to];
  }
  return at?.ends === true;
}

/** Undefined if it takes too many steps or states, or constrains nothing. */
function attempt(
  { patterns, least, most, excludedTexts = [], excludedPatterns = [] }: TextForm,
  work: WorkBudget,
): Automaton | undefined {
  let left = MAX_TEXT_STEPS;
  try {
    const languages = new Languages((steps) => {
      left -= steps;
      if (left < 0 || !work.spendPattern(steps)) throw new TooLarge();
    });
    const required = patterns.flatMap((pattern) => patternLanguage(pattern, languages) ?? []);
    const excluded = excludedPatterns.map((pattern) => patternLanguage(pattern, languages));
    if (excluded.includes(undefined)) return undefined;
    if (required.length === 0 && patterns.length > 0 && excludedTexts.length + excludedPatterns.length === 0)
      return undefined;
    const texts = languages.times(languages.symbol([[0, LAST_CODE_POINT]]), least, most);
    const end = languages.symbol([[AFTER, AFTER]]);
    const framed = languages.then(languages.symbol([[BEFORE, BEFORE]]), languages.then(texts, end));
    const others = [...excludedTexts.map((text) => exactly(text, languages)), ...excluded]
      .flatMap((language) => language ?? [])
      .map((language) => languages.not(language));
    return statesOf(languages.after(languages.both([framed, ...required, ...others]), BEFORE), languages);
  } catch (error) {
    if (error instanceof TooLarge) return undefined;
    throw error;
  }
}

class TooLarge extends Error {}

function exactly(text: string, languages: Languages): Language {
  const points = [BEFORE, ...Array.from(text, (character) => character.codePointAt(0) ?? 0), AFTER];
  return points.reduceRight((rest, point) => languages.then(languages.symbol([[point, point]]), rest), languages.empty);
}

function statesOf(start: Language, languages: Languages): Automaton {
  const numbers = new Map([[start, 0]]);
  const states: State[] = [];
  // Iterating over a map also visits what is added meanwhile.
  for (const language of numbers.keys()) {
    const next = new Map<Language, Span[]>();
    for (const { symbol, spans } of languages.classes(language, LAST_CODE_POINT)) {
      const onward = languages.after(language, symbol);
      if (onward === languages.none) continue;
      const known = next.get(onward);
      if (known) known.push(...spans);
      else next.set(onward, [...spans]);
    }
    for (const onward of next.keys()) if (!numbers.has(onward)) numbers.set(onward, numbers.size);
    if (numbers.size > MAX_STATES) throw new TooLarge();
    states.push({
      ends: languages.after(language, AFTER).nullable,
      next: [...next].map(([onward, spans]) => ({ spans: merged(spans), to: numbers.get(onward) ?? 0 })),
    });
  }
  return live(states);
}

/** Without the transitions that lead to no accepting state by those that are possible. */
export function live(states: Automaton, isPossible: (transition: Transition) => boolean = () => true): Automaton {
  const into = states.map((): number[] => []);
  const possible = states.map(({ next }) => next.filter(isPossible));
  possible.forEach((next, from) => next.forEach(({ to }) => into[to]?.push(from)));
  const reached = new Set(states.flatMap(({ ends }, state) => (ends ? [state] : [])));
  for (const state of reached) for (const before of into[state] ?? []) reached.add(before);
  if (!reached.has(0)) return [];
  return states.map(({ ends }, state) => ({
    ends,
    next: reached.has(state) ? (possible[state] ?? []).filter(({ to }) => reached.has(to)) : [],
  }));
}

/** The formats of JSON Schema that grammars enforce, as patterns. */

const DAY = String.raw`(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))`;
const CLOCK = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?`;
const ZONE = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`;
const BYTE = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`;
const GROUP = '[0-9a-fA-F]{1,4}';
/** Whatever its length: fewer states. */
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?';
const HOST = String.raw`${LABEL}(?:\.${LABEL})*`;
const HEX = '[0-9a-fA-F]';
/** Of RFC 3986, without what must be percent-encoded. */
const URI_CHARACTER = String.raw`(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%${HEX}{2})`;
const URI = String.raw`[A-Za-z][A-Za-z0-9+.-]*:(?://[A-Za-z0-9._~-]+(?::\d{1,5})?(?:[/?]${URI_CHARACTER}*)?|[A-Za-z0-9._~@+-]${URI_CHARACTER}*)(?:#${URI_CHARACTER}*)?`;

const N = String.raw`\d{1,4}`;
const DAYS = `(?:${N}Y(?:${N}M)?(?:${N}D)?|${N}M(?:${N}D)?|${N}D)`;
const HOURS = `T(?:${N}H(?:${N}M)?(?:${N}S)?|${N}M(?:${N}S)?|${N}S)`;

/**
 * By name. They are the usual forms of what RFC 3339, 5321, 3986, 4122 and 1123 allow: an address without quotes, a URI with a
 * host name, an IPv6 address without `::` in short.
 */
const FORMATS: Readonly<Record<string, string>> = {
  date: DAY,
  time: `${CLOCK}${ZONE}`,
  'date-time': `${DAY}T${CLOCK}${ZONE}`,
  duration: `P(?:${N}W|${DAYS}(?:${HOURS})?|${HOURS})`,
  uuid: `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}`,
  ipv4: String.raw`${BYTE}(?:\.${BYTE}){3}`,
  ipv6: `${GROUP}(?::${GROUP}){7}|::1|(?:${GROUP}:){1,6}:${GROUP}`,
  email: String.raw`[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@(?:${LABEL}\.)+[A-Za-z]{2,}`,
  hostname: HOST,
  uri: URI,
  url: URI,
  'uri-reference': URI,
};

/** Undefined if no grammar enforces this format. */
export function formatPattern(format: string): string | undefined {
  return Object.hasOwn(FORMATS, format) ? `^(?:${FORMATS[format] ?? ''})$` : undefined;
}
