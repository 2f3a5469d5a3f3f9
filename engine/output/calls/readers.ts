import type { CallFormat } from '../../protocol/reply-format.js';
import { JsonArguments, type ArgumentsReader } from './arguments-reader.js';
import { LooseJson } from './loose-json.js';
import { NestedReader } from './nested-arguments.js';
import { TaggedReader } from './tagged-arguments.js';

/** A reader of the arguments of one call of `name`, in the format's notation. */
export function readerOf(format: CallFormat, name: string): ArgumentsReader {
  const { syntax, functions, parameters = [], nested = [] } = format;
  const { arguments: notation, close, next } = syntax;
  const ends = next === undefined ? [close] : [close, next];
  switch (notation?.kind) {
    case undefined:
      return new JsonArguments();
    case 'bare':
      return new LooseJson({ quote: notation.quote });
    case 'keywords':
      return new LooseJson({ end: ')' });
    case 'tagged': {
      const ways = functions.flatMap((each, i) => (each === name ? (parameters[i] ?? []) : []));
      return new TaggedReader(notation, ways, ends);
    }
    case 'nested':
      return new NestedReader(notation, nested[functions.indexOf(name)] ?? [], ends);
  }
}
