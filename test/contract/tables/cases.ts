/** Every case of every table. */
import { CHAT, CHAT_CASES, CHAT_OBJECTS, CHAT_RULES } from './chat-tables.js';
import { DECISIONS, DECISION_CASES, DECISION_OBJECTS, DECISION_RULES } from './decision-tables.js';
import { JSON_CASES } from './json-tables.js';
import { type ContractCase, type Surface, casesOfClosed, casesOfRule, changed } from './rule.js';
import { SYSTEMONE, SYSTEMONE_CASES, SYSTEMONE_OBJECTS, SYSTEMONE_RULES } from './systemone-tables.js';
import { TOOL_CASES, TOOL_OBJECTS, TOOL_RULES } from './tool-tables.js';

const asTheyAre = (surface: Surface): ContractCase => changed(surface, [], surface.base);

export const CASES: readonly ContractCase[] = [
  ...[CHAT, DECISIONS, SYSTEMONE].map(asTheyAre),
  ...[...CHAT_RULES, ...TOOL_RULES].flatMap((rule) => casesOfRule(CHAT, rule)),
  ...[...CHAT_OBJECTS, ...TOOL_OBJECTS]
    .flatMap((closed) => casesOfClosed(CHAT, closed))
    // Here another rule speaks: a named tool_choice needs its tool.
    .filter(({ name }) => name !== 'chat: tools takes nothing'),
  ...CHAT_CASES,
  ...TOOL_CASES,
  ...DECISION_RULES.flatMap((rule) => casesOfRule(DECISIONS, rule)),
  ...DECISION_OBJECTS.flatMap((closed) => casesOfClosed(DECISIONS, closed)),
  ...DECISION_CASES,
  ...SYSTEMONE_RULES.flatMap((rule) => casesOfRule(SYSTEMONE, rule)),
  ...SYSTEMONE_OBJECTS.flatMap((closed) => casesOfClosed(SYSTEMONE, closed)),
  ...SYSTEMONE_CASES,
  ...JSON_CASES,
];

export const LIGHT_CASES = CASES.filter(({ heavy }) => !heavy);

/** Bodies of 16 MiB, for the bounds of texts. */
export const HEAVY_CASES = CASES.filter(({ heavy }) => heavy);
