import type { CallSyntax } from '../protocol/messages.js';

/** How a model calls tools, in one line for the operator. `native`: as its template does. */
export interface CallFormatText {
  readonly native: boolean;
  readonly says: string;
}

/** `syntax`: as found from the template; undefined: the template takes no tools. */
export function callFormatText(syntax: CallSyntax | undefined): CallFormatText {
  if (syntax === undefined) return { native: false, says: 'its template takes no tools: requests with tools get 422' };
  if (syntax.answer !== undefined) {
    return {
      native: false,
      says: 'calls by a JSON instruction in the prompt, since the format of its own is not known',
    };
  }
  const mark = syntax.mark === '' ? "at the reply's beginning" : `behind ${syntax.mark}`;
  const notation = syntax.arguments === undefined ? 'as JSON' : 'one by one between tags';
  const several = syntax.next === undefined ? 'one call a reply' : 'several calls a reply';
  return { native: true, says: `its own format: calls ${mark}, arguments ${notation}, ${several}` };
}
