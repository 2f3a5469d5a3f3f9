/** Every case of every table. */
import { CHAT, CHAT_CASES, CHAT_OBJECTS, CHAT_RULES } from './chat-tables.js';
import { DECISIONS, DECISION_CASES, DECISION_OBJECTS, DECISION_RULES } from './decision-tables.js';
import { JSON_CASES } from './json-tables.js';
import {
  type Closed,
  type ContractCase,
  type Rule,
  type Surface,
  caseOf,
  changed,
  verdictsOfClosed,
  verdictsOfRule,
} from './rule.js';
import { SYSTEMONE, SYSTEMONE_CASES, SYSTEMONE_OBJECTS, SYSTEMONE_RULES } from './systemone-tables.js';
import { TOOL_CASES, TOOL_OBJECTS, TOOL_RULES } from './tool-tables.js';

function casesOf(surface: Surface, rules: readonly Rule[], objects: readonly Closed[]): ContractCase[] {
  return [
    changed(surface, [], surface.base),
    ...[...rules.flatMap(verdictsOfRule), ...objects.flatMap(verdictsOfClosed)].map((one) => caseOf(surface, one)),
  ];
}

export const CASES: readonly ContractCase[] = [
  ...casesOf(CHAT, [...CHAT_RULES, ...TOOL_RULES], [...CHAT_OBJECTS, ...TOOL_OBJECTS])
    // Here another rule speaks: a named tool_choice needs its tool.
    .filter(({ name }) => name !== 'chat: tools accepts nothing'),
  ...CHAT_CASES,
  ...TOOL_CASES,
  ...casesOf(DECISIONS, DECISION_RULES, DECISION_OBJECTS),
  ...DECISION_CASES,
  ...casesOf(SYSTEMONE, SYSTEMONE_RULES, SYSTEMONE_OBJECTS),
  ...SYSTEMONE_CASES,
  ...JSON_CASES,
];

export const LIGHT_CASES = CASES.filter(({ heavy }) => !heavy);

/** Bodies of 1 MB or 16 MiB, for the bounds of texts. */
export const HEAVY_CASES = CASES.filter(({ heavy }) => heavy);
