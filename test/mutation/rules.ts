/** Removes each rule of the schemas in turn: without it, some case of the tables must have another outcome. */
import { ANSWER_SCHEMAS } from '../../sidecar/contracts/answer-schemas.js';
import { CHAT_SCHEMA } from '../../sidecar/contracts/chat-schema.js';
import { DECISIONS_SCHEMA } from '../../sidecar/contracts/decisions.js';
import { SYSTEMONE_SCHEMA } from '../../sidecar/contracts/systemone.js';
import { type Check, compile } from '../../sidecar/contracts/validator.js';
import { type Json, withAt } from '../support/bodies.js';
import { type Lacking, lackingOneRule } from '../support/schema-rules.js';
import type { AnswerTable } from '../contract/tables/answer-builders.js';
import { ANSWER_TABLES } from '../contract/tables/answer-tables.js';
import { PIECES, chunkWith } from '../contract/tables/chunk-tables.js';
import { HEAVY_CASES, LIGHT_CASES } from '../contract/tables/cases.js';
import { verdictsOfClosed, verdictsOfRule } from '../contract/tables/rule.js';

interface Subject {
  readonly name: string;
  readonly schema: object;
  /** Whole bodies, the cheap ones first. */
  readonly bodies: readonly Json[];
}

const REQUESTS = { chat: CHAT_SCHEMA, decisions: DECISIONS_SCHEMA, systemone: SYSTEMONE_SCHEMA } as const;

const SUBJECTS: readonly Subject[] = [
  ...(['chat', 'decisions', 'systemone'] as const).map((name) => ({
    name,
    schema: REQUESTS[name],
    bodies: [...LIGHT_CASES, ...HEAVY_CASES].flatMap(({ route, value }) => (route === name && value ? [value()] : [])),
  })),
  ...Object.entries(ANSWER_SCHEMAS).map(([kind, schema]) => ({
    name: `${kind} answer`,
    schema,
    bodies: [
      ...ANSWER_TABLES.filter((table) => table.kind === kind).flatMap(bodiesOf),
      ...(kind === 'chunk' ? [...PIECES.good, ...PIECES.bad].map(chunkWith) : []),
    ],
  })),
];

function bodiesOf({ base, rules, objects }: AnswerTable): Json[] {
  const verdicts = [...rules.flatMap(verdictsOfRule), ...objects.flatMap(verdictsOfClosed)];
  return [base, ...verdicts.map(({ at, value }) => withAt(base, at, value))];
}

/** The outcome of a check for a body, for comparison. */
function said(check: Check<unknown>, body: Json): string {
  const outcome = check(body);
  return outcome.ok ? 'ok' : `${outcome.path} ${outcome.message}`;
}

/** The check without a rule; undefined if ajv rejects the schema, which counts as a failing case. */
function compiled(schema: object): Check<unknown> | undefined {
  try {
    return compile(schema);
  } catch {
    return undefined;
  }
}

/** Rules without which every body has the same outcome. */
function needlessRules({ schema, bodies }: Subject, rules: readonly Lacking[]): string[] {
  const whole = compile(schema);
  const outcomes: string[] = [];
  return rules
    .filter((lacking) => {
      const check = compiled(lacking.schema);
      return (
        check !== undefined && !bodies.some((body, i) => said(check, body) !== (outcomes[i] ??= said(whole, body)))
      );
    })
    .map(({ rule }) => rule);
}

/** Rules that could be removed without another outcome for any body, and why they are kept. */
const SAID_TWICE: readonly (readonly [rule: RegExp, why: string])[] = [
  [/^chat: properties\/tool_choice\/else\/type$/, 'what is neither refused before nor a string is an object'],
  [
    /^chat: properties\/messages\/items\/oneOf\/2\/required$/,
    'its only name is the tag, which the discriminator requires',
  ],
  [/^decisions: properties\/prompt_format_version\/type$/, 'its enum has the same types'],
  [/\/if\/type$/, 'a pattern applies to strings only'],
  [/\/propertyNames\/type$/, 'names are strings'],
  [/^systemone: .*\/criteria\/(?:.*\/)?(?:true|false|additionalProperties|items)\/type$/, 'it lists every type'],
];

let needless = 0;
for (const subject of SUBJECTS) {
  const rules = lackingOneRule(subject.schema);
  const unnoticed = needlessRules(subject, rules);
  process.stdout.write(`${subject.name}: ${rules.length} rules, ${unnoticed.length} whose removal no case notices\n`);
  for (const rule of unnoticed) {
    const why = SAID_TWICE.find(([known]) => known.test(`${subject.name}: ${rule}`))?.[1];
    process.stdout.write(`  ${rule}: ${why ?? 'NO CASE'}\n`);
    if (why === undefined) needless++;
  }
}
process.exitCode = needless === 0 ? 0 : 1;
