import type { CallSyntax } from '../protocol/reply-format.js';

/** How a model calls tools, in one line for the operator. `native`: as its template does. */
export interface CallFormatText {
  readonly native: boolean;
  readonly says: string;
}

const NOTATIONS = {
  json: 'as JSON',
  tagged: 'one by one between tags',
  bare: 'as an object without quotes around keys',
  keywords: 'by name as in Python',
} as const;

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
  const notation = NOTATIONS[syntax.arguments?.kind ?? 'json'];
  const several = syntax.next === undefined ? 'one call a reply' : 'several calls a reply';
  return { native: true, says: `its own format: calls ${mark}, arguments ${notation}, ${several}` };
}
