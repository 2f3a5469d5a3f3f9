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
