/** How tools are shown to a model, and how it calls them: found from its template, or set by the operator. */
import type { CallSyntax } from '../protocol/reply-format.js';
import { familyOf } from './call-families.js';
import { showsCalls, type Render } from './call-probes.js';
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

/** `lists`: the template lists tools. `format`: `models[].toolFormat`. `source`: the template's own. */
export function toolUseOf(source: string, lists: boolean, format: string, render: Render): ToolUse {
  const chosen = format !== 'auto';
  const calls = format === 'json' ? WRAPPED : chosen ? namedSyntax(format) : callSyntaxOf(source, render);
  const shows = lists || showsCalls(render);
  const { userRecipient } = familyOf(source) ?? {};
  return { ...(calls && { calls }), lists, shows, chosen, ...(userRecipient !== undefined && { userRecipient }) };
}
