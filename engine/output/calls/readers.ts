import type { CallFormat } from '../../protocol/messages.js';
import { JsonArguments, type ArgumentsReader } from './arguments-reader.js';
import { TaggedReader } from './tagged-arguments.js';

/** A reader of the arguments of one call of `name`, in the format's notation. */
export function readerOf({ syntax, functions, parameters = [] }: CallFormat, name: string): ArgumentsReader {
  const { arguments: notation, close, next } = syntax;
  if (notation === undefined) return new JsonArguments();
  const declared = functions.flatMap((each, i) => (each === name ? (parameters[i] ?? []) : []));
  return new TaggedReader(notation, declared, next === undefined ? [close] : [close, next]);
}
