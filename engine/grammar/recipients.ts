/** The rules of a reply whose parts are each after a mark and a recipient (CallSyntax.userRecipient). */
import { inClass, literal, textUpTo } from './gbnf.js';

/** What a recipient's name consists of. */
const NAME = 'A-Za-z0-9_-';

/**
 * The rule `start`, of a reply after its first mark, in terms of `call-one`. `further`: more calls after the first. `answer`:
 * it may be text for the user, and calls may follow that. A mark that is no recipient's, since no name follows, is text.
 */
export function addressedRules(
  start: string,
  mark: string,
  user: string,
  { further, answer }: { readonly further: string; readonly answer: boolean },
): string[] {
  const calls = `call-one${further}`;
  if (!answer) return [`${start} ::= ${calls}`];
  const text = textUpTo(mark, 'call-said', 'call-marked').map((rule) => `${rule} | ""`);
  const [again = ''] = mark;
  // After a mark that is none the next one is looked for, as the parser does.
  const onward = Array.from(mark).length === 1 ? 'call-marked' : 'call-said-1';
  return [
    `${start} ::= ${calls} | ${literal(`${user}\n`)} call-said-0`,
    ...text,
    `call-marked ::= ${calls} | [^${inClass(again)}${NAME}] call-said-0 | ${literal(again)} ${onward} | ""`,
  ];
}
