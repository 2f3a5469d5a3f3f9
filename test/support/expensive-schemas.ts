/** Schemas of a few kilobytes that each take more work than the compiler of tools does, and are refused. */
import { SHORT } from './open-stream.js';

/** The longest body of the prompt host for short bodies, by default. */
export const INLINE_BYTES = 16 * 1024;

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => i.toString(36));
const repeated = (count: number, schema: object): object[] => Array.from({ length: count }, () => schema);

/** The only one of them that takes the compiler as long as it lets it: none of its products is past the bound by itself. */
export const SMALL_PRODUCTS = 'products in many properties';

/** By what they multiply. */
export const EXPENSIVE_SCHEMAS = {
  'required names': { required: names(2000), allOf: [{ anyOf: repeated(255, {}) }, ...repeated(190, {})] },
  'bounds of a text': { allOf: [{ anyOf: repeated(250, { minLength: 1 }) }, ...repeated(600, { minLength: 1 })] },
  properties: {
    allOf: [
      { anyOf: names(128).map((name) => ({ properties: { [name]: {} } })) },
      ...repeated(190, { required: ['a'] }),
    ],
  },
  [SMALL_PRODUCTS]: {
    type: 'object',
    properties: Object.fromEntries(
      names(30).map((name, i) => [name, { allOf: repeated(8, { anyOf: [{ minLength: 1 }, { minLength: 2 + i }] }) }]),
    ),
  },
} satisfies Readonly<Record<string, object>>;

/** A chat whose only tool has one required parameter with this schema. */
export function chatWith(schema: object, chat: object = SHORT): string {
  const parameters = { type: 'object', properties: { p: schema }, required: ['p'] };
  return JSON.stringify({ ...chat, tools: [{ type: 'function', function: { name: 'f', parameters } }] });
}

/** The same body, long enough for the prompt host of long bodies: JSON may end in spaces. */
export function asLong(body: string): string {
  return body.padEnd(INLINE_BYTES + 1);
}
