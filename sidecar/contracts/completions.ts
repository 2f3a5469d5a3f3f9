/** POST /completions is not served: all that is read of its body is which model it names. */
import { readJson } from './json.js';

/** The `model` of a body; undefined when it is not the JSON that we take, not an object, or names none. Never throws. */
export function modelNamedBy(bytes: Uint8Array): string | undefined {
  const read = readJson(bytes);
  if (!read.ok || typeof read.value !== 'object' || read.value === null) return undefined;
  const { model } = read.value as { readonly model?: unknown };
  return typeof model === 'string' ? model : undefined;
}
