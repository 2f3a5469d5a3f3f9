import { literal } from './gbnf.js';
import { alternativesText, type Alternative, type Item } from './rules.js';

/**
 * One of these texts, as a tree: common prefixes are written once, so that llama.cpp, which follows all alternatives at
 * once, has at most one per distinct character. `texts`: distinct, at least one. Depth of the recursion: at most their
 * number.
 */
export function choice(texts: readonly string[], newRule: (alternatives: readonly Alternative[]) => string): Item {
  return { rule: newRule(branches(texts, newRule)) };
}

/** The name of a rule for one of these texts. `newRule`: makes a rule of its alternatives' text and returns its name. */
export function choiceRule(texts: readonly string[], newRule: (text: string) => string): string {
  return newRule(alternativesText(branches(texts, (alternatives) => newRule(alternativesText(alternatives)))));
}

function branches(texts: readonly string[], newRule: (alternatives: readonly Alternative[]) => string): Alternative[] {
  const groups = new Map<string, string[]>();
  for (const text of texts) {
    const [first = ''] = text;
    const group = groups.get(first);
    if (group) group.push(text);
    else groups.set(first, [text]);
  }
  return [...groups.values()].map((group): Alternative => {
    const [only = ''] = group;
    if (group.length === 1) return [literal(only)];
    const common = commonBeginning(group);
    const rests = group.map((text) => text.slice(common.length));
    return [literal(common), { rule: newRule(branches(rests, newRule)) }];
  });
}

/** Of whole characters. */
function commonBeginning(texts: readonly string[]): string {
  const [first = '', ...others] = texts;
  let units = first.length;
  for (const other of others) {
    let same = 0;
    while (same < units && first[same] === other[same]) same += 1;
    units = same;
  }
  // Not between the halves of a character.
  const lead = first.charCodeAt(units - 1);
  return first.slice(0, units < first.length && lead >= 0xd800 && lead <= 0xdbff ? units - 1 : units);
}
