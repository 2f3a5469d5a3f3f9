import t from 'tap';
import { callRules } from '../../../engine/grammar/calls.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { MAX_WORK, QUICK_WORK, WorkBudget } from '../../../engine/grammar/work.js';
import { itemsOf, join, type Rope } from '../../../engine/grammar/shape.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import { LOOSE_SYNTAXES, NESTED_SYNTAXES, TAGGED_SYNTAXES } from '../../support/call-syntaxes.js';
import { EXPENSIVE_SCHEMAS, SMALL_PRODUCTS } from '../../support/expensive-schemas.js';

type Schema = Readonly<Record<string, unknown>>;

const SYNTAX = { mark: '<tool_call>', open: '<tool_call>{"name":"', between: '","arguments":', close: '}</tool_call>' };

const times = <T>(count: number, item: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => item(i));
const names = (count: number): string[] => times(count, (i) => `n${i.toString(36)}`);
const each = (count: number, schema: (i: number) => Schema): Schema =>
  Object.fromEntries(names(count).map((name, i) => [name, schema(i)]));
const object = (properties: Schema, required: readonly string[] = []): Schema => ({
  type: 'object',
  properties,
  required,
});
const one = (schema: Schema): Schema => object({ p: schema }, ['p']);
/** ``depth` nested schemas. */
const nested = (depth: number, around: (inner: Schema) => Schema): Schema =>
  depth === 0 ? {} : around(nested(depth - 1, around));

/** Ordinary tools, more of each kind than any client sends: each results in a grammar near the largest. */
const SENSIBLE: readonly (readonly [what: string, tools: readonly Schema[]])[] = [
  [
    'one tool of 1,200 required properties',
    [
      object(
        each(1200, () => ({ type: 'string' })),
        names(1200),
      ),
    ],
  ],
  ['one tool of 230 optional properties', [object(each(230, () => ({ type: 'string', description: 'x' })))]],
  [
    '128 tools of 3 properties',
    times(128, () =>
      object(
        each(3, () => ({ type: 'string' })),
        names(2),
      ),
    ),
  ],
  [
    '30 tools of 20 properties',
    times(30, () =>
      object(
        each(20, () => ({ type: 'integer' })),
        names(20),
      ),
    ),
  ],
  ['an enum of 2,000 values', [one({ enum: names(2000) })]],
  ['60,000 characters of enum', [one({ enum: names(1000).map((name) => name.padEnd(55, 'x')) })]],
  [
    '50 variants of an object',
    [
      one({
        oneOf: names(50).map((kind) =>
          object({ kind: { const: kind }, ...each(3, () => ({ type: 'string' })) }, ['kind']),
        ),
      }),
    ],
  ],
  ['50 nested objects', [nested(50, (inner) => object({ a: inner, b: { type: 'string' }, c: {} }, ['b']))]],
];

t.test('no ordinary list of tools takes more than four fifths of the bound', (t) => {
  for (const [what, tools] of SENSIBLE) {
    const work = new WorkBudget();
    work.weigh(tools);
    const functions = tools.map((parameters, i) => ({ name: `tool_${i}`, parameters }));
    const made = callRules(SYNTAX, functions, { single: false, answer: false }, work);
    t.equal(made.kind, 'ok', what);
    t.ok(work.spent < 0.8 * MAX_WORK, `${what}: ${work.spent} steps`);
  }
  t.end();
});

t.test('an object that is composed of two takes little more work than one with all properties', (t) => {
  const part = (prefix: string): Schema =>
    object(Object.fromEntries(names(15).map((name) => [prefix + name, { type: 'string', description: name }])));
  const [a, b] = [part('a'), part('b')];
  const whole = object({ ...(a['properties'] as Schema), ...(b['properties'] as Schema) });
  const named: Readonly<Record<string, CallSyntax>> = { ...TAGGED_SYNTAXES, ...NESTED_SYNTAXES, ...LOOSE_SYNTAXES };
  const syntaxes: readonly CallSyntax[] = [SYNTAX, ...Object.values(named)];
  for (const syntax of syntaxes) {
    const steps = (parameters: Schema): number => {
      const work = new WorkBudget();
      const made = callRules(syntax, [{ name: 'f', parameters }], { single: false, answer: false }, work);
      t.equal(made.kind, 'ok', syntax.open);
      return work.spent;
    };
    const [one, two] = [steps(whole), steps({ allOf: [a, b] })];
    t.ok(two < 1.25 * one, `${syntax.open}: ${two} steps, beside ${one}`);
  }
  t.end();
});

/** Each is at most 16 KB of JSON, and took 0.1 to 20 s when sets were copied and only shapes were counted. */
const EXPENSIVE: readonly (readonly [what: string, schema: Schema])[] = [
  [
    '2,000 required names beside combinations',
    { required: names(2000), allOf: [{ anyOf: times(255, () => ({})) }, ...times(190, () => ({}))] },
  ],
  [
    'the same of objects',
    {
      required: names(800),
      allOf: [{ anyOf: times(250, () => ({ type: 'object' })) }, ...times(190, () => ({ type: 'object' }))],
    },
  ],
  [
    'required names of each alternative',
    {
      allOf: [
        { anyOf: names(250).map((name) => ({ required: [name] })) },
        ...names(190).map((name) => ({ required: [name] })),
      ],
    },
  ],
  [
    'an enum that each alternative restricts',
    { allOf: [{ anyOf: times(200, () => ({ enum: names(8) })) }, ...times(100, () => ({ enum: names(8) }))] },
  ],
  [
    'lengths of each alternative',
    { allOf: [{ anyOf: times(250, () => ({ minLength: 1 })) }, ...times(600, () => ({ minLength: 1 }))] },
  ],
  [
    'properties of each alternative',
    {
      allOf: [
        { anyOf: names(128).map((name) => ({ properties: { [name]: {} } })) },
        ...names(128).map((name) => ({ properties: { [name]: {} } })),
      ],
    },
  ],
  [
    'products in many properties',
    object(each(40, () => ({ allOf: times(8, () => ({ anyOf: [{ type: 'string' }, { type: 'null' }] })) }))),
  ],
];

/** CPU time of the quickest of several runs, in ms. */
function cpuMs(run: () => unknown): number {
  return Math.min(
    ...times(5, () => {
      const before = process.cpuUsage();
      run();
      // Both: the kernel divides a short time between them by chance.
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1000;
    }),
  );
}

t.test('a schema of 16 KB costs no more than ordinary ones, whatever it contains', (t) => {
  const usual = SENSIBLE[0]?.[1][0];
  for (const [what, schema] of EXPENSIVE) {
    const tool = one(schema);
    t.ok(JSON.stringify(tool).length <= 16_384, what);
    // Each time, since a shared machine is not always equally fast.
    const usualMs = cpuMs(() => schemaGrammar(usual));
    const ms = cpuMs(() => schemaGrammar(tool));
    t.ok(ms < 10 * usualMs, `${what}: ${ms} ms, beside ${usualMs} ms`);
  }
  t.end();
});

/** How often steps were counted. */
class CountedWork extends WorkBudget {
  times = 0;

  override spend(steps: number): void {
    this.times += 1;
    super.spend(steps);
  }
}

/** Schemas and names, at any depth. */
function valuesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((sum: number, inner) => sum + valuesIn(inner), 1);
}

t.test('products and lists of properties past the bound are refused at once, without a compiler of their own', (t) => {
  for (const [what, schema] of Object.entries(EXPENSIVE_SCHEMAS)) {
    if (what === SMALL_PRODUCTS) continue;
    const tool = one(JSON.parse(JSON.stringify(schema)) as Schema);
    const work = new CountedWork();
    work.weigh([tool]);
    const weighed = work.times;
    work.limit(QUICK_WORK);
    t.equal(schemaGrammar(tool, 'value', work).kind, 'unservable', what);
    t.notOk(work.stopped, `${what}: more steps would not do`);
    t.ok(work.times - weighed < 2 * valuesIn(tool), `${what}: ${work.times} times for ${valuesIn(tool)} values`);
  }
  t.end();
});

t.test('products of several properties count together, before each is made', (t) => {
  const { properties } = EXPENSIVE_SCHEMAS[SMALL_PRODUCTS];
  const made = (count: number): string =>
    schemaGrammar(one({ type: 'object', properties: Object.fromEntries(Object.entries(properties).slice(0, count)) }))
      .kind;
  t.same([made(1), made(2)], ['ok', 'unservable'], 'one of 500 joins, with a rule for each, and two');
  t.end();
});

const PAST = { message: /^has too many values, alternatives or combinations/ };

t.test('work that is foreseen is refused once it is more than what is left, and is not counted before', (t) => {
  const work = new WorkBudget();
  work.spend(40_000);
  work.foresee(MAX_WORK - 40_000);
  t.equal(work.spent, 40_000);
  work.limit(10_000);
  t.throws(() => {
    work.foresee(10_001);
  }, PAST);
  t.ok(work.stopped, 'it fits the bound, but not the limit');
  t.throws(() => {
    work.foresee(MAX_WORK);
  }, PAST);
  t.ok(work.exhausted);
  t.end();
});

t.test('a refusal for the bound repeats none of the caller’s text', (t) => {
  const [, , [, expensive] = []] = EXPENSIVE;
  t.match(schemaGrammar(one(expensive ?? {})), {
    kind: 'unservable',
    why: PAST.message,
  });
  t.end();
});

t.test('the bound applies to all tools of a request together', (t) => {
  const tool = object(
    each(10, () => ({ enum: names(200) })),
    names(10),
  );
  const made = (count: number, work: WorkBudget): string =>
    callRules(
      SYNTAX,
      times(count, (i) => ({ name: `tool_${i}`, parameters: tool })),
      { single: true, answer: false },
      work,
    ).kind;
  const first = new WorkBudget();
  made(1, first);
  const all = new WorkBudget();
  t.equal(made(128, all), 'unservable');
  t.ok(first.spent < MAX_WORK / 2, `${first.spent} steps of one`);
  t.ok(all.spent <= MAX_WORK + first.spent, `${all.spent} steps of all`);
  t.end();
});

t.test('a schema of many values is refused before it is read, also where the compiler would ignore them', (t) => {
  let read = 0;
  const values = new Proxy(
    times(1_000_000, () => 0),
    {
      get: (list, key) => {
        if (key !== 'length' && key !== Symbol.iterator) read += 1;
        return Reflect.get(list, key) as unknown;
      },
    },
  );
  t.throws(() =>
    new WorkBudget().weigh([{ parameters: { properties: { a: { type: 'string', items: { enum: values } } } } }]),
  );
  t.equal(read, 0);
  t.end();
});

t.test('a rope has the items of both sides in order', (t) => {
  let rope: Rope<number>;
  for (let i = 0; i < 100_000; i++) rope = i % 2 === 0 ? join(rope, { item: i }) : join({ item: i }, rope);
  let steps = 0;
  const items = itemsOf(rope, () => (steps += 1));
  t.equal(items.length, 100_000);
  t.same([items[0], items.at(-1)], [99_999, 99_998]);
  t.ok(steps <= 200_000);
  t.same(
    itemsOf(join(undefined, undefined), () => undefined),
    [],
  );
  t.end();
});
