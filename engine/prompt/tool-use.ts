/** How tools are shown to a model, and how it calls them: found from its template, or set by the operator. */
import type { CallSyntax } from '../protocol/reply-format.js';
import { familyOf } from './call-families.js';
import type { Render } from './call-probes.js';
import { callSyntaxOf, WRAPPED } from './call-syntax.js';
import { namedSyntax } from './named-syntaxes.js';

export interface ToolUse {
  /** How the model writes calls; absent: it is given no tools. */
  readonly calls?: CallSyntax;
  /** The template lists the tools. Otherwise a system message that this module writes lists them. */
  readonly lists: boolean;
  /** The template writes earlier calls and their results in its own way. Otherwise they are written as text. */
  readonly shows: boolean;
  /** Stands, with a line end after it, in front of what a reply says to the user, whether tools are offered or not. */
  readonly userRecipient?: string;
  /** The format is the operator's choice. */
  readonly chosen: boolean;
}

/** `found`: what the template does. `format`: `models[].toolFormat`. `source`: the template's own. */
export function toolUseOf(
  source: string,
  { lists, shows }: Pick<ToolUse, 'lists' | 'shows'>,
  format: string,
  render: Render,
): ToolUse {
  const chosen = format !== 'auto';
  const calls = format === 'json' ? WRAPPED : chosen ? namedSyntax(format) : callSyntaxOf(source, render);
  const { userRecipient } = familyOf(source) ?? {};
  return { ...(calls && { calls }), lists, shows, chosen, ...(userRecipient !== undefined && { userRecipient }) };
}

/** How a model calls tools, in one line for the operator. `native`: in its own format. `chosen`: by the operator. */
export interface CallFormatText {
  readonly native: boolean;
  readonly chosen: boolean;
  readonly says: string;
}

const NOTATIONS = {
  json: 'as JSON',
  tagged: 'one by one between tags',
  nested: 'as nested elements',
  bare: 'as an object without quotes around keys',
  keywords: 'by name as in Python',
} as const;

const LISTED = '; its template lists no tools, so that a system message does';
const TEXT = ', and earlier calls and results as plain text';

/** `use`: as found from the template, or as the operator chose. */
export function callFormatText({ calls, lists, shows, chosen }: ToolUse): CallFormatText {
  if (calls === undefined)
    return { native: false, chosen, says: 'none, as toolFormat says: requests with tools get 422' };
  const listed = `${lists ? '' : LISTED}${shows ? '' : TEXT}`;
  if (calls.answer !== undefined) {
    const why = chosen ? 'as toolFormat says' : 'since the format of its own is not known';
    return { native: false, chosen, says: `calls by a JSON instruction in the prompt, ${why}${listed}` };
  }
  const mark = calls.mark === '' ? "at the reply's beginning" : `after ${calls.mark}`;
  const notation = NOTATIONS[calls.arguments?.kind ?? 'json'];
  const several = calls.next === undefined ? 'one call a reply' : 'several calls a reply';
  const whose = chosen ? 'the format that toolFormat names' : 'its own format';
  return { native: true, chosen, says: `${whose}: calls ${mark}, arguments ${notation}, ${several}${listed}` };
}
