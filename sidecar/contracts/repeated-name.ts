import { repeatsName } from './json.js';
import { elementsOf, membersOf, rootOf, type Span } from './json-text.js';

/**
 * What is wrong with an operator's JSON file in which a name occurs twice in one object; undefined: nothing. JSON.parse
 * takes the last one, so what the first one said would be lost without a word. `value` is what JSON.parse made of
 * `text`, of a schema that bounds its depth. The place is looked for only in a file that has such a name.
 */
export function repeatedName(text: string, value: unknown): string | undefined {
  if (!repeatsName(text, value)) return undefined;
  const at = secondOf(text, rootOf(text));
  return at === undefined ? REPEATED : `${REPEATED}, on line ${lineAt(text, at)}`;
}

/** The problem without the place. */
export const REPEATED = 'repeats a name within one object';

/** The line of a place in a text, from 1. */
export function lineAt(text: string, at: number): number {
  return text.slice(0, at).split('\n').length;
}

/** Where the value of a name is that its object has already. */
function secondOf(text: string, span: Span): number | undefined {
  const first = text[span.from];
  if (first === '{') {
    const names = new Set<string>();
    for (const member of membersOf(text, span)) {
      if (names.has(member.name)) return member.from;
      names.add(member.name);
      const found = secondOf(text, member);
      if (found !== undefined) return found;
    }
  }
  if (first === '[') {
    for (const element of elementsOf(text, span)) {
      const found = secondOf(text, element);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}
