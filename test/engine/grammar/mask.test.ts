import * as fc from 'fast-check';
import t from 'tap';
import { grammarText, grammarAfter, literal } from '../../../engine/grammar/gbnf.js';
import { dataGrammar } from '../../../engine/grammar/notation.js';
import {
  hasBit,
  MaskGrammar,
  type MaskLimits,
  type Standing,
  sortedTokens,
  type SortedTokens,
} from '../../../engine/grammar/mask.js';
import { MAX_MASKS } from '../../../engine/grammar/mask-memory.js';
import { programOf } from '../../../engine/grammar/program.js';
import { Reach } from '../../../engine/grammar/reach.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { schemas } from '../../support/json-schemas.js';
import { rounds } from '../../support/long-form.js';

const LIMITS = { work: 1e9, share: () => 1 };
const END = 0;

/** Token 0 is an end token, token 1 has no bytes. */
function vocabulary(texts: readonly (string | Uint8Array)[]): SortedTokens {
  const all = [Buffer.from('<end>'), Buffer.alloc(0), ...texts.map((text) => Buffer.from(text as string))];
  const starts = Uint32Array.from([0, ...all]).fill(0);
  for (const [i, { length }] of all.entries()) starts[i + 1] = (starts[i] ?? 0) + length;
  return sortedTokens(Buffer.concat(all), starts, Uint32Array.of(END));
}

const BYTES = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
const TEXTS = [
  '{"',
  '"}',
  '":',
  '": ',
  '", "',
  '[[',
  ']]',
  '},',
  'true',
  'null',
  'ab',
  'a"',
  '12',
  '1.',
  '-1',
  'é',
  '中"',
  '  ',
];

function maskGrammar(gbnf: string, tokens: SortedTokens, limits: MaskLimits = LIMITS): MaskGrammar {
  const made = MaskGrammar.of(gbnf, tokens, limits);
  if (!made) throw new Error('not read');
  return made;
}

function grammarOf(schema: unknown): { readonly gbnf: string; readonly stacks: number } | undefined {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  return made.kind === 'ok' && text.kind === 'ok' ? { gbnf: text.gbnf, stacks: made.stacks } : undefined;
}

/** The state after a text, read byte by byte; throws if the text is not allowed. */
function read(grammar: MaskGrammar, text: string): Standing {
  let standing = grammar.start;
  for (const byte of Buffer.from(text)) {
    const next = grammar.after(standing, 2 + byte);
    if (!next) throw new Error(`${text} is not allowed`);
    standing = next;
  }
  return standing;
}

t.test('the mask excludes exactly the tokens that no allowed text continues with, for every grammar', (t) => {
  const tokens = vocabulary([...BYTES, ...TEXTS]);
  fc.assert(
    fc.property(schemas, fc.integer(), fc.double({ min: 0, max: 1, noNaN: true }), (schema, seed, share) => {
      const made = grammarOf(schema);
      if (!made) return;
      const reader = new Gbnf(made.gbnf);
      const grammar = maskGrammar(made.gbnf, tokens);
      const whole = Array.from(reader.write(seeded(seed)));
      const before = whole.slice(0, Math.floor(share * whole.length)).join('');
      const standing = read(grammar, before);
      const may = grammar.mask(standing);
      for (let token = 0; token < 2 + BYTES.length + TEXTS.length; token++)
        if (grammar.allows(standing, token) !== hasBit(may, token)) throw new Error(`${before} and token ${token}`);
      for (const [i, text] of TEXTS.entries()) {
        const no = reader.reads(before + text) === 'no';
        if (hasBit(may, 2 + BYTES.length + i) === no) throw new Error(JSON.stringify([before, text, no]));
      }
      if (hasBit(may, END) !== (reader.reads(before) === 'whole')) throw new Error('the end');
      if (hasBit(may, 1)) throw new Error('a token without a text');
    }),
    { numRuns: rounds({ short: 6, long: 60 }) },
  );
  t.end();
});

t.test('characters that are split over several tokens are checked by their first bytes', (t) => {
  const tokens = vocabulary(BYTES);
  const grammar = maskGrammar('root ::= [à-ï] "中" | "🎉" | [^\\x00-\\x7F] "!"', tokens);
  const allowed = (standing: Standing): number[] => {
    const may = grammar.mask(standing);
    return BYTES.map((_, byte) => byte).filter((byte) => hasBit(may, 2 + byte));
  };
  const behind = (...bytes: readonly number[]): Standing | undefined =>
    bytes.reduce<Standing | undefined>((at, byte) => at && grammar.after(at, 2 + byte), grammar.start);
  const leads = allowed(grammar.start);
  t.notOk(
    leads.some((byte) => byte < 0xc2 || byte > 0xf4),
    'no ASCII, no byte that begins no character',
  );
  t.ok(leads.includes(0xc3) && leads.includes(0xf0));
  const begun = behind(0xc3);
  t.ok(begun && allowed(begun).every((byte) => byte >> 6 === 2), 'only its remaining bytes may follow');
  const a = behind(0xc3, 0xa0);
  t.same(a && allowed(a), [0x21, 0xe4], 'and then what the grammar allows');
  t.equal(behind(0xc3, 0x41), undefined);
  t.equal(behind(0x80), undefined);
  t.end();
});

t.test('bytes that are no character are not allowed where any character is', (t) => {
  const grammar = maskGrammar('root ::= [^"]{1,3}', vocabulary(BYTES));
  const behind = (bytes: Iterable<number>): Standing | undefined => {
    let at: Standing | undefined = grammar.start;
    for (const byte of bytes) at &&= grammar.after(at, 2 + byte);
    return at;
  };
  for (const point of [0x80, 0x7ff, 0x800, 0xfff, 0x1000, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x3ffff, 0x40000, 0x10ffff])
    t.ok(behind(Buffer.from(String.fromCodePoint(point))), `U+${point.toString(16)}`);
  for (const bytes of [
    [0xed, 0xa0, 0x80],
    [0xed, 0xbf, 0xbf],
    [0xe0, 0x80, 0x80],
    [0xe0, 0x9f, 0xbf],
    [0xf0, 0x80, 0x80, 0x80],
    [0xf0, 0x8f, 0xbf, 0xbf],
    [0xf4, 0x90, 0x80, 0x80],
  ]) {
    const name = Buffer.from(bytes).toString('hex');
    t.equal(behind(bytes), undefined, name);
    const begun = behind(bytes.slice(0, 1));
    t.equal(begun && grammar.allows(begun, 2 + (bytes[1] ?? 0)), false, `${name}, its second byte`);
  }
  t.end();
});

t.test('a text may be free up to a mark, and ends where the grammar does', (t) => {
  const tokens = vocabulary([...BYTES, 'thought', '</t>', '</t>\n{', '</t>x']);
  const grammar = maskGrammar(grammarAfter('</t>', dataGrammar), tokens);
  const [thought, mark, object, wrong] = [258, 259, 260, 261];
  const may = (standing: Standing, token: number): boolean => hasBit(grammar.mask(standing), token);
  t.same(
    [thought, mark, object, wrong].map((token) => may(grammar.start, token)),
    [true, true, true, false],
  );
  const inObject = grammar.after(grammar.start, object);
  t.ok(inObject && may(inObject, 2 + 0x7d) && !may(inObject, END));
  t.ok(may(read(grammar, 'x</t> {"a": 1}'), END));
  t.end();
});

t.test('no text is in more states than its schema has', (t) => {
  fc.assert(
    fc.property(schemas, fc.integer(), (schema, seed) => {
      const made = grammarOf(schema);
      const program = made && programOf(made.gbnf);
      if (!program) return;
      const reach = new Reach(program, 1e9);
      let set = reach.start;
      for (const character of new Gbnf(made.gbnf).write(seeded(seed))) {
        if (reach.places(set) > made.stacks) throw new Error(`${reach.places(set)} and not ${made.stacks}`);
        set = reach.after(set, character.codePointAt(0) ?? 0);
      }
    }),
    { numRuns: rounds({ short: 25, long: 300 }) },
  );
  t.end();
});

const object = (properties: object, required = Object.keys(properties)): object => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
});
const SELF = { $ref: '#/$defs/value' };
const LIST = { type: 'array', items: SELF };
const union = (...anyOf: readonly object[]): object => ({ ...SELF, $defs: { value: { anyOf } } });
/** The JSON schema of a tuple. */
const tuple = (...prefixItems: readonly object[]): object => ({
  type: 'array',
  prefixItems,
  items: false,
  minItems: prefixItems.length,
});

/** Unions whose alternatives differ before they recurse: a text is in one of them at each level. */
const RECURSIVE: Readonly<Record<string, object>> = {
  'a filter': union(
    object({ and: LIST }),
    object({ or: LIST }),
    object({ not: SELF }),
    object({ field: { type: 'string' }, equals: { type: 'string' } }),
  ),
  'an expression': union(
    object({ op: { enum: ['+', '-'] }, left: SELF, right: SELF }),
    object({ op: { const: 'neg' }, operand: SELF }),
    { type: 'number' },
  ),
  'a user interface': union(
    object({ type: { const: 'row' }, children: LIST }),
    object({ type: { const: 'column' }, children: LIST }),
    object({ type: { const: 'text' }, text: { type: 'string' } }),
  ),
  'optional members that are alike, then others': union(
    { ...object({ id: { type: 'string' }, and: LIST }, ['and']), additionalProperties: true },
    { ...object({ id: { type: 'string' }, or: LIST }, ['or']), additionalProperties: true },
  ),
  tuples: union(tuple({ const: '+' }, SELF, SELF), tuple({ const: 'neg' }, SELF), { type: 'number' }),
  'two unions that refer to each other': {
    ...SELF,
    $defs: {
      value: { anyOf: [object({ a: { $ref: '#/$defs/other' } }), object({ b: { $ref: '#/$defs/other' } })] },
      other: { anyOf: [LIST, object({ c: SELF }), object({ d: SELF }), { type: 'null' }] },
    },
  },
  'many alternatives': union(
    ...Array.from({ length: 40 }, (_, i) => object({ kind: { const: `k${i}` }, children: LIST })),
  ),
};

t.test('a text is in one of the alternatives of a recursive union that differ before they recurse', (t) => {
  for (const [what, schema] of Object.entries(RECURSIVE)) {
    const made = grammarOf(schema);
    const program = made && programOf(made.gbnf);
    if (!program) throw new Error(`${what} is not served`);
    const random = seeded(1);
    for (let i = 0; i < 8; i++) {
      const reach = new Reach(program, 1e9);
      const most = [0];
      let level = 0;
      let set = reach.start;
      for (const character of new Gbnf(made.gbnf).write(random).slice(0, 2000)) {
        most[level] = Math.max(most[level] ?? 0, reach.places(set));
        if ('[{'.includes(character)) level += 1;
        if (']}'.includes(character)) level -= 1;
        set = reach.after(set, character.codePointAt(0) ?? 0);
      }
      const places = Math.max(...most);
      t.ok(places <= made.stacks, `${what}: ${most.join()} of ${made.stacks}`);
      // Were two alternatives in the recursion, each level would have more than the one before.
      t.ok(Math.max(0, ...most.slice(6)) <= Math.max(12, ...most.slice(0, 6)), `${what}: ${most.join()}`);
    }
  }
  t.end();
});

t.test('an alternative that continues beside a recursive one is counted at each level', (t) => {
  const made = grammarOf(
    union({ ...object({ name: { type: 'string' }, children: LIST }), additionalProperties: true }, { type: 'object' }),
  );
  const program = made && programOf(made.gbnf);
  if (!program) throw new Error('not served');
  const reach = new Reach(program, 1e9);
  let set = reach.start;
  let most = 0;
  for (const character of '{"name":"","children":['.repeat(12)) {
    most = Math.max(most, reach.places(set));
    set = reach.after(set, character.codePointAt(0) ?? 0);
  }
  t.ok(most > 30 && most <= made.stacks, `${most} of ${made.stacks}`);
  t.end();
});

t.test('equal alternatives are merged', (t) => {
  const of = (schemas: readonly object[]): number => grammarOf({ anyOf: schemas })?.stacks ?? NaN;
  for (const schema of [
    { type: 'array' },
    { type: 'string', maxLength: 9 },
    { type: 'array', items: { type: 'object', properties: { a: { enum: ['x', 'y'] } }, required: ['a'] } },
  ]) {
    const all = Array.from({ length: 250 }, () => structuredClone(schema));
    t.equal(of(all), of([schema]), JSON.stringify(schema));
  }
  const different = Array.from({ length: 100 }, (_, i) => ({ type: 'array', maxItems: i + 1 }));
  t.ok(of(different) > (100 * of([{ type: 'boolean' }])) / 2, 'but not those that differ');
  t.end();
});

t.test('a grammar that grows too large is rebuilt from the current states of its texts', (t) => {
  const tokens = vocabulary([...BYTES, ...TEXTS]);
  const gbnf = grammarOf({ anyOf: Array.from({ length: 100 }, (_, i) => ({ type: 'array', maxItems: i + 1 })) })?.gbnf;
  const small = maskGrammar(gbnf ?? '', tokens, { work: 1e9, share: () => 0 });
  // Calls that find all of the memory its own.
  let calls = Infinity;
  const large = maskGrammar(gbnf ?? '', tokens, { work: 1e9, share: () => (calls-- > 0 ? 1 : 0) });
  const text = '[["a", 1, [true, "bc"], 2.5], [[["x"]], null], "中", {"a": {"b": ["c", ["d"]]}}, [[[[1]]]], 7, [';
  const standings = [small, large].map((grammar) => ({ grammar, at: grammar.start }));
  const reaches = new Set<Reach>();
  for (const byte of Buffer.from(text)) {
    const [one, other] = standings.map((each) => {
      each.at = each.grammar.after(each.at, 2 + byte) ?? each.at;
      return each.grammar.mask(each.at);
    });
    t.same(one, other);
    reaches.add(standings[0]?.at.reach ?? new Reach({ kinds: [], values: [], classes: [], rules: [], root: 0 }, 1));
  }
  t.ok(reaches.size > 1);
  const [one, other] = standings.map(({ grammar, at }) => ({ grammar, at: grammar.after(at, 2 + '['.charCodeAt(0)) }));
  calls = 1;
  if (!one?.at || !other?.at) throw new Error('not allowed');
  t.same(other.grammar.mask(other.at), one.grammar.mask(one.at), 'its share shrinks meanwhile');
  t.end();
});

t.test('the work of a mask is bounded, and computed masks are kept', (t) => {
  const tokens = vocabulary(BYTES);
  const gbnf = `root ::= ${Array.from({ length: 500 }, (_, i) => `"${'a'.repeat(i + 1)}b"`).join(' | ')}`;
  t.throws(() => maskGrammar(gbnf, tokens, { work: 100, share: () => 1 }), { name: 'GrammarTooExpensive' });
  const few = { work: 1e9, share: () => 4096 / MAX_MASKS };
  const grammar = maskGrammar(`root ::= ${literal('a'.repeat(100))}`, tokens, few);
  t.equal(grammar.known(grammar.start), undefined);
  t.equal(grammar.mask(grammar.start), grammar.known(grammar.start)?.mask);
  const first = grammar.mask(grammar.start);
  for (let i = 1; i <= 50; i++) grammar.mask(read(grammar, 'a'.repeat(i)));
  t.not(grammar.mask(grammar.start), first, 'but not forever');
  t.ok(grammar.bytes < 40_000, `${grammar.bytes} bytes`);
  t.end();
});

t.test('a mask is made with the tokens that leave its place, of one numbering as long as that holds', (t) => {
  const tokens = vocabulary([...BYTES, ...TEXTS]);
  let share = 1;
  const grammar = maskGrammar(dataGrammar, tokens, { work: 1e9, share: () => share });
  const standing = read(grammar, '{"a');
  const mask = grammar.mask(standing);
  const { place, ...made } = grammar.known(standing) ?? {};
  t.same([made, place?.at], [{ mask, isNarrow: false }, standing.set]);
  const leaves = new Map<number | undefined, number | undefined>();
  for (let i = 0; i < (place?.leaves.length ?? 0); i += 2) leaves.set(place?.leaves[i], place?.leaves[i + 1]);
  for (const token of tokens.order) {
    if (!hasBit(mask, token)) continue;
    const after = grammar.after(standing, token);
    t.equal(leaves.get(token) ?? standing.set, after?.lacks === 0 ? after.set : -1, `token ${token}`);
  }
  t.ok(leaves.size > 5 && leaves.size < 300, `${leaves.size} tokens leave a text`);
  t.equal(grammar.known({ ...standing, lacks: 1 }), undefined, 'within a character');
  const other = read(grammar, '{"a": ');
  grammar.mask(other);
  t.equal(grammar.known(other)?.place?.of, place?.of);
  const again = maskGrammar(dataGrammar, tokens, { work: 1e9, share: () => share });
  again.mask(again.start);
  t.not(again.known(again.start)?.place?.of, place?.of);
  share = 0;
  grammar.mask(grammar.start);
  t.equal(grammar.known(standing), undefined, 'it was dropped for another one');
  t.end();
});

t.test('grammars of an unknown form are not used', (t) => {
  for (const gbnf of ['', 'rood ::= "a"', 'root ::= other', 'root ::= "a', 'root := "a"', 'root ::= ("a"']) {
    t.equal(programOf(gbnf), undefined, gbnf);
  }
  t.end();
});
