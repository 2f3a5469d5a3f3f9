import { CallParser } from '../../engine/output/calls/call-parser.js';
import type { CallConstraint } from '../../engine/output/calls/call-text.js';
import type { CallFormat } from '../../engine/protocol/reply-format.js';

/** The results of parsing a reply. */
export interface ReadCalls {
  readonly content: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  /** Complete calls. */
  readonly complete: number;
}

/** Parses a reply that arrives in these pieces. Throws on a piece without a call. */
export function readCalls(format: CallFormat, pieces: readonly string[], hold?: CallConstraint): ReadCalls {
  const parser = new CallParser(format, hold);
  const calls: { name: string; arguments: string }[] = [];
  let content = '';
  for (const piece of pieces) {
    const text = parser.push(piece);
    content += text.content;
    for (const { index, name, arguments: part } of text.calls) {
      if (name !== undefined) calls.push({ name, arguments: '' });
      const call = calls[index];
      if (call === undefined || index !== calls.length - 1) throw new Error('out of turn');
      call.arguments += part;
    }
  }
  content += parser.end().content;
  return { content, calls, complete: parser.calls };
}
