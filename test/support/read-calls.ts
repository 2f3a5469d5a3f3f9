import type { Test } from 'tap';
import { CallParser } from '../../engine/output/calls/call-parser.js';
import type { CallConstraint } from '../../engine/output/calls/call-text.js';
import type { CallFormat } from '../../engine/protocol/reply-format.js';
import { seeded, type Gbnf } from './gbnf.js';

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

/** What a grammar allows: each text is read as calls with valid arguments, wherever it is cut. `validate`: of a call's arguments, by its name. */
export function readsAllOf(t: Pick<Test, 'same' | 'ok'>, gbnf: Gbnf, { format, validate, texts }: CallReading): void {
  const random = seeded(7);
  for (let i = 0; i < texts; i++) {
    const reply = gbnf.write(random);
    const characters = Array.from(reply);
    const { content, calls } = readCalls(format, [reply]);
    const cut = Math.floor(random() * characters.length);
    const inTwo = readCalls(format, [characters.slice(0, cut).join(''), characters.slice(cut).join('')]);
    t.same([inTwo.calls, content], [calls, ''], `cut at ${cut}`);
    t.same(readCalls(format, characters).calls, calls, 'character by character');
    t.ok(calls.length > 0);
    for (const call of calls) {
      const valid = validate.get(call.name);
      t.ok(valid?.(JSON.parse(call.arguments)), `${call.arguments} of ${reply}`);
    }
  }
}

interface CallReading {
  readonly format: CallFormat;
  readonly validate: ReadonlyMap<string, (value: unknown) => unknown>;
  /** How many. */
  readonly texts: number;
}
