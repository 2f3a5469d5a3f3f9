/**
 * What a chat template is given for each level of `reasoning_effort`. Templates have different names and values for it: a switch
 * (`enable_thinking`, `thinking`), a level (`reasoning_effort`, `thinking_effort`, `reasoning_strength`), a mode or a number of
 * tokens. Each template is rendered with them once, when it is loaded, and each level gets the values that come nearest to it:
 *
 * - `none` turns thought off where the template can do that, and is its lowest level elsewhere.
 * - A level that the template does not have is the next one above that it has, or its highest.
 */

/** The levels in order. */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra'] as const;
export type Effort = (typeof EFFORTS)[number];

/** Names that a template reads, with their values. */
export type EffortValues = Readonly<Record<string, string | number | boolean>>;

export type Efforts = Readonly<Record<Effort, EffortValues>>;

/** Names of a level. A template has one of them at most. */
const LEVEL_NAMES = ['reasoning_effort', 'thinking_effort', 'reasoning_strength'];

/** A name whose value depends on the level in a way that is the same for all templates. */
interface Switch {
  readonly name: string;
  readonly valueAt: (effort: Effort) => string | number | boolean;
}

/** Tokens of thought at each level (ByteDance's Seed-OSS); -1: without a bound, which is also its default. */
const BUDGETS: Readonly<Record<Effort, number>> = {
  none: 0,
  minimal: 512,
  low: 1024,
  medium: 4096,
  high: 16384,
  xhigh: -1,
  max: -1,
  ultra: -1,
};

const SWITCHES: readonly Switch[] = [
  { name: 'thinking', valueAt: (effort) => effort !== 'none' },
  { name: 'thinking_budget', valueAt: (effort) => BUDGETS[effort] },
  // Adaptive: the model decides whether it thinks (MiniMax-M3).
  { name: 'thinking_mode', valueAt: modeAt },
];

function modeAt(effort: Effort): string {
  if (effort === 'none') return 'disabled';
  return effort === 'minimal' || effort === 'low' ? 'adaptive' : 'enabled';
}

/** A level that no template has: shows what a template does with one that it does not know. */
const UNKNOWN = 'unknown-level';
/** Levels above `high`, which a template has only if it does something else with them than with a level that it does not know. */
const HIGHEST: ReadonlySet<Effort> = new Set(['xhigh', 'max', 'ultra']);
/** What templates that write any level are asked for: the levels that such models are trained with. */
const USUAL: readonly Effort[] = ['low', 'medium', 'high'];
/** Values that may turn thought off, in the order of trying. Undefined if the name is not set. */
const OFF_VALUES = [undefined, 'none', 'no_think', 'minimal', 'low'] as const;

/**
 * Finds the values for each level. `render` renders one user message with such values, and returns undefined if the template throws.
 * `skipped`: whether a prompt ends with a thought that is over.
 */
export function probeEfforts(
  source: string,
  render: (values: EffortValues) => string | undefined,
  skipped: (prompt: string) => boolean,
): Efforts {
  const switches = SWITCHES.filter(({ name, valueAt }) => {
    const given = (effort: Effort): string | undefined => render({ enable_thinking: true, [name]: valueAt(effort) });
    return reads(source, name) && given('none') !== given('max');
  });
  const switched = (effort: Effort): EffortValues => ({
    enable_thinking: effort !== 'none',
    ...Object.fromEntries(switches.map(({ name, valueAt }) => [name, valueAt(effort)])),
  });
  const name = LEVEL_NAMES.find((each) => reads(source, each));
  if (name === undefined) return eachEffort(switched);

  const withLevel = (effort: Effort, level: string | undefined): EffortValues =>
    level === undefined ? switched(effort) : { ...switched(effort), [name]: level };
  const levelOf = levelChoice(source, (level) => render(withLevel('max', level)));
  const off = OFF_VALUES.map((level) => withLevel('none', level));
  const skips = off.find((values) => {
    const prompt = render(values);
    return prompt !== undefined && skipped(prompt);
  });
  const none = (): EffortValues => {
    if (skips) return skips;
    const turnsOff = render(switched('none')) !== render(switched('max'));
    return turnsOff ? switched('none') : withLevel('none', levelOf('minimal'));
  };
  return eachEffort((effort) => (effort === 'none' ? none() : withLevel(effort, levelOf(effort))));
}

/** How a template's own level is chosen. `render`: a prompt with that level, undefined if the template throws at it. */
function levelChoice(
  source: string,
  render: (level: string) => string | undefined,
): (effort: Effort) => string | undefined {
  const prompts = new Map(EFFORTS.map((level) => [level, render(level)]));
  const unknown = render(UNKNOWN);
  const takes = (level: Effort): boolean => prompts.get(level) !== undefined;
  if (unknown === undefined) return (effort) => nearest(effort, takes);
  if (unknown.includes(UNKNOWN)) {
    const quotes = (level: string): boolean => source.includes(`'${level}'`) || source.includes(`"${level}"`);
    const has = (level: Effort): boolean => takes(level) && (USUAL.includes(level) || quotes(level));
    return (effort) => nearest(effort, has);
  }
  // It compares levels with those that it knows. All others give one prompt, which is that of its usual effort.
  const knows = (level: Effort): boolean => takes(level) && prompts.get(level) !== unknown;
  return (effort) => {
    if (!HIGHEST.has(effort)) return nearest(effort, takes);
    return nearest(effort, (level) => (HIGHEST.has(level) ? knows(level) : takes(level)));
  };
}

/** The level itself, else the next one above, else the next one below. `none` is left out. */
function nearest(effort: Effort, has: (level: Effort) => boolean): Effort | undefined {
  const at = EFFORTS.indexOf(effort);
  return EFFORTS.slice(at).find(has) ?? EFFORTS.slice(1, at).findLast(has);
}

function eachEffort(values: (effort: Effort) => EffortValues): Efforts {
  return Object.fromEntries(EFFORTS.map((effort) => [effort, values(effort)])) as unknown as Efforts;
}

function reads(source: string, name: string): boolean {
  return new RegExp(`\\b${name}\\b`).test(source);
}
