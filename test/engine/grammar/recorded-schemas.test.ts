/**
 * Schemas as zod, TypeBox, pydantic 1 and 2 and public MCP servers produced them (test/fixtures/schemas): each is accepted under `contract:
 * compatible` as a tool’s parameters, and texts of its grammar are valid by ajv. The short form tests every fifth
 * schema with few samples.
 */
import addFormats from 'ajv-formats';
import { Ajv, type Options } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { callRules } from '../../../engine/grammar/calls.js';
import { grammarText } from '../../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { textAutomaton } from '../../../engine/grammar/text-automaton.js';
import { WorkBudget } from '../../../engine/grammar/work.js';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import type { Tool } from '../../../sidecar/contracts/requests.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { cases, rounds } from '../../support/long-form.js';
import { sourceRoot } from '../../support/source-root.js';

interface Recorded {
  readonly origin: string;
  readonly name: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

const file = join(sourceRoot, 'test/fixtures/schemas/recorded.jsonl');
const lines = readFileSync(file, 'utf8').trim().split('\n');
const recorded = lines.map((line) => JSON.parse(line) as Recorded);

/** Tools with these parameters, as the contract makes them of the request. */
function toolsOf(schemas: readonly object[]): readonly Tool[] {
  const tools = schemas.map((parameters, i) => ({ type: 'function', function: { name: `f${i}`, parameters } }));
  const body = { model: 'm', messages: [{ role: 'user', content: 'x' }], tools };
  const parsed = parseBody('compatible', Buffer.from(JSON.stringify(body)));
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return 'conversation' in parsed.request ? (parsed.request.conversation.tools ?? []) : [];
}

/** The grammar of a call’s arguments. */
function grammarOf(schema: object): Gbnf {
  const [tool] = toolsOf([schema]);
  const made = schemaGrammar(tool?.function.parameters);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (text.kind === 'unservable') throw new Error(text.why);
  return new Gbnf(text.gbnf);
}

let patternsNotHeld = 0;

/**
 * As ajv accepts it: without the keywords that docs/compatible.md lists as not enforced, and with draft 4’s switches as
 * bounds.
 */
function checked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(checked);
  if (typeof value !== 'object' || value === null) return value;
  const made = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, checked(inner)]));
  delete made['$schema'];
  delete made['uniqueItems'];
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (made[exclusive] !== true) continue;
    made[exclusive] = made[bound];
    Reflect.deleteProperty(made, bound);
  }
  const { pattern } = made;
  if (typeof pattern !== 'string') return made;
  if (!textAutomaton({ patterns: [pattern], formats: [], least: 0, most: Infinity }, new WorkBudget())) {
    patternsNotHeld += 1;
    delete made['pattern'];
  }
  return made;
}

function validatorOf(schema: object): (value: unknown) => boolean {
  // ajv does not know formats of single libraries; these have patterns beside them.
  const options: Options = { strict: false, validateSchema: false, multipleOfPrecision: 1, logger: false };
  const draft7 = /draft-0[4-7]|"items":\[/.test(JSON.stringify(schema));
  const ajv = draft7 ? new Ajv(options) : new Ajv2020(options);
  (addFormats as unknown as (ajv: Ajv | Ajv2020) => void)(ajv);
  return ajv.compile(checked(schema) as object);
}

t.ok(recorded.length >= 200, `${recorded.length} schemas`);
t.equal(
  new Set(recorded.map(({ origin }) => origin.split(/[ ,]/)[0])).size,
  15,
  'there are schemas of so many packages',
);

t.test('each is accepted, and has a grammar', (t) => {
  for (const { origin, name, schema } of recorded) t.doesNotThrow(() => grammarOf(schema), `${origin}: ${name}`);
  t.end();
});

/** As models write calls that the chat templates of the Hermes and Qwen families ask for. */
const SYNTAX = { mark: '<tool_call>', open: '<tool_call>{"name":"', between: '","arguments":', close: '}</tool_call>' };

t.test('all tools of a public server together are within the bound of work', (t) => {
  const servers = new Set(recorded.map(({ origin }) => origin).filter((origin) => origin.endsWith(', tools/list')));
  t.ok(servers.size >= 10, `${servers.size} servers`);
  for (const server of servers) {
    const tools = toolsOf(recorded.filter(({ origin }) => origin === server).map(({ schema }) => schema));
    const work = new WorkBudget();
    work.weigh(tools);
    const functions = tools.map((tool) => tool.function);
    const made = callRules(SYNTAX, functions, { single: false, answer: false }, work);
    t.equal(made.kind, 'ok', `${server}: ${tools.length} tools, ${work.spent} steps`);
  }
  t.end();
});

t.test('the texts of a grammar are valid', (t) => {
  for (const { origin, name, schema } of cases(recorded, (_, i) => i % 5 === 0)) {
    const grammar = grammarOf(schema);
    const valid = validatorOf(schema);
    const random = seeded(1);
    const calls = Array.from({ length: rounds({ short: 2, long: 20 }) }, () => grammar.write(random));
    t.strictSame(
      calls.filter((text) => !valid(JSON.parse(text))),
      [],
      `${origin}: ${name}`,
    );
  }
  t.end();
});

t.test('at most one of their patterns is not enforced', (t) => {
  patternsNotHeld = 0;
  for (const { schema } of recorded) checked(schema);
  t.equal(patternsNotHeld, 1);
  t.end();
});
