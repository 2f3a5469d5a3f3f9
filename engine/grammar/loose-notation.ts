/** How notations close to JSON write what is not in a schema. */
import type { BareArguments, KeywordArguments } from '../protocol/reply-format.js';
import { literal, textUpTo } from './gbnf.js';

export type Notation = BareArguments | KeywordArguments;

/** The name of a member that no schema declares. */
export const OTHER_NAME = '[A-Za-z0-9_]{1,64}';

/** What stands around values. */
export interface Marks {
  readonly between: string;
  readonly braces: readonly [string, string];
}

export const MARKS: Readonly<Record<Notation['kind'], Marks>> = {
  bare: { between: '":" json-ws', braces: ['"{" json-ws', '"}"'] },
  keywords: { between: '"="', braces: ['""', '""'] },
};

/** Rules of any value as keywords have it. LFM2.5's template writes line ends and tabs in texts as they are. */
const PYTHON = [
  String.raw`loose-char ::= [^'\\\x00-\x08\x0B-\x1F\x7F] | "\\" ['"\\nt]`,
  `loose-string ::= json-string | "'" loose-char* "'"`,
  'loose-value ::= loose-string | json-object | json-array | json-number | loose-boolean | loose-null',
  'loose-boolean ::= "True" | "False" | "true" | "false"',
  'loose-null ::= "None" | "null"',
];

function bareRules(quote: string): string[] {
  return [
    `loose-string ::= ${literal(quote)} loose-text-0`,
    ...textUpTo(quote, 'loose-text', 'loose-text-end'),
    'loose-text-end ::= ""',
    `loose-member ::= ${OTHER_NAME} ":" json-ws loose-value json-ws`,
    'loose-object ::= "{" json-ws (loose-member ("," json-ws loose-member)*)? "}"',
    'loose-array ::= "[" json-ws (loose-value json-ws ("," json-ws loose-value json-ws)*)? "]"',
    'loose-value ::= loose-object | loose-array | loose-string | json-number | loose-boolean | loose-null',
    'loose-boolean ::= "true" | "false"',
    'loose-null ::= "null"',
  ];
}

/** Rules of any value, `loose-value`, and of its kinds. Beside the rules of JSON. */
export function anyValueRules(notation: Notation): readonly string[] {
  return notation.kind === 'bare' ? bareRules(notation.quote) : PYTHON;
}
