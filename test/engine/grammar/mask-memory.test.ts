/** The counted bytes of grammars, compared with the memory of this process. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { grammarText, literal, MAX_GRAMMAR_CHARACTERS, MAX_REPETITIONS } from '../../../engine/grammar/gbnf.js';
import { hasBit, MaskGrammar, sortedTokens, type TokenBits } from '../../../engine/grammar/mask.js';
import { grammarNeed, LEAST_REACH, MAX_KEPT, MAX_PROGRAM, MAX_REACH } from '../../../engine/grammar/mask-memory.js';
import { programBytes, programOf } from '../../../engine/grammar/program.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { cases, LONG, rounds } from '../../support/long-form.js';
import { InlineConstraint } from '../../../engine/llama/grammar-constraint.js';
import { Grammars } from '../../../engine/llama/grammars.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes that this process retains. */
function kept(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** What else the process may retain meanwhile, such as compiled code: at most 0.8 MB was measured. */
const MIB = 2 ** 20;

const times = <T>(count: number, item: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => item(i));

/** All bytes, and texts of several characters. */
const TEXTS = [
  ...times(256, (byte) => Buffer.of(byte)),
  ...times(rounds({ short: 1000, long: 4000 }), (i) => Buffer.from(i.toString(36).padEnd(4, 'xyz'))),
];
function vocabulary(texts: readonly Buffer[]) {
  const starts = new Uint32Array(texts.length + 2);
  for (const [i, { length }] of [Buffer.from('<end>'), ...texts].entries()) starts[i + 1] = (starts[i] ?? 0) + length;
  return { bytes: Buffer.concat([Buffer.from('<end>'), ...texts]), starts, ends: Uint32Array.of(0) };
}
const ALL = vocabulary(TEXTS);

/** A grammar of an object of texts with distinct names, which has as many states as characters. */
function wide(seed: number): string {
  const names = times(300, (i) => `${seed}-${(i * 7919).toString(36)}`);
  const string = { type: 'string', maxLength: 20 + (seed % 7) };
  const made = schemaGrammar({
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, string])),
    required: names,
  });
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (text.kind !== 'ok') throw new Error(text.why);
  return text.gbnf;
}

/** One of the tokens that may come, another one in each step; undefined if only the end may. */
function nextOf(may: TokenBits, step: number): number | undefined {
  const listed: number[] = [];
  for (let token = 1; token <= TEXTS.length; token++) {
    if (!hasBit(may, token)) continue;
    if (listed.length === 1000) return 1 + 'x'.charCodeAt(0);
    listed.push(token);
  }
  return listed[step % listed.length];
}

/** Writes a text that the grammar allows, token by token, and computes the mask of each state. */
function write(hold: InlineConstraint, tokens: number): void {
  for (let i = 0; i < tokens; i++) {
    const { grammar, standing } = hold.here;
    const next = nextOf(grammar.mask(standing), i);
    if (next === undefined) return;
    hold.accept(next);
  }
}

function store(): Grammars {
  return new Grammars({ ...ALL, control: new Uint32Array(0), names: [] });
}

t.test('the programs of the largest grammars', async (t) => {
  const most = MAX_GRAMMAR_CHARACTERS - 100;
  const largest = {
    literals: `root ::= ${literal('a'.repeat(most))}`,
    alternatives: `root ::= ${times(most / 6, () => '"a"').join(' | ')}`,
    repetitions: `root ::= ("ab" | "cd"){0,${MAX_REPETITIONS}}`,
    counted: `root ::= ${times(256, () => `("a" | "b"){0,${MAX_REPETITIONS / 256}}`).join(' ')}`,
    classes: `root ::= ${times(most / 14, (i) => `[\\U${(0x1000 + i).toString(16).padStart(8, '0')}]`).join(' ')}`,
    rules: `root ::= r0\n${times(most / 20, (i) => `r${i} ::= "a"`).join('\n')}`,
  };
  for (const [what, gbnf] of cases(Object.entries(largest), ([what]) => what === 'counted' || what === 'classes')) {
    const before = kept();
    const program = programOf(gbnf);
    const took = kept() - before;
    if (!program) throw new Error(what);
    const counted = programBytes(program);
    t.ok(counted <= MAX_PROGRAM, `${what}: ${counted} bytes`);
    t.ok(took < 1.2 * counted + MIB, `${what}: ${took} bytes in this process, ${counted} counted`);
  }
});

t.test('the bytes that a grammar retains are counted', async (t) => {
  const tokens = sortedTokens(ALL.bytes, ALL.starts, ALL.ends);
  const grammar = MaskGrammar.of(wide(1), tokens, { work: 1e9, share: () => 1 });
  if (!grammar) throw new Error('not read');
  const before = kept();
  let standing = grammar.start;
  for (let i = 0; i < 4000 && grammar.bytes < MAX_REACH / 2; i++) {
    const next = nextOf(grammar.mask(standing), i);
    const after = next === undefined ? undefined : grammar.after(standing, next);
    if (!after) break;
    standing = after;
  }
  const took = kept() - before;
  t.ok(grammar.bytes > LEAST_REACH, `${grammar.bytes} bytes counted`);
  t.ok(took < grammar.bytes + MIB, `${took} bytes in this process, ${grammar.bytes} counted`);
});

if (LONG) {
  t.test('a grammar that was large while alone is reduced when others come', async (t) => {
    const grammars = store();
    const alone = wide(1);
    const hold = new InlineConstraint(grammars, alone, []);
    write(hold, 6000);
    const first = grammars.grammar(alone);
    t.ok((first?.bytes ?? 0) > 2 * LEAST_REACH, `${first?.bytes ?? 0} bytes alone`);
    for (let seed = 2; seed < 2 + MAX_REACH / LEAST_REACH; seed++) grammars.grammar(wide(seed));
    t.ok((first?.bytes ?? 0) <= 1.5 * LEAST_REACH, `${first?.bytes ?? 0} bytes among others`);
    write(hold, 3);
  });
}

t.test('a store stays within its bound, whatever replies use it', async (t) => {
  const { stores, perSeat } = grammarNeed(TEXTS.length);
  const grammars = store();
  const before = kept();
  const seats = 4;
  let most = 0;
  // More than it keeps.
  const grammarsUsed = (rounds({ short: 5, long: 8 }) * MAX_KEPT) / 4;
  for (let round = 0; round < grammarsUsed / seats; round++) {
    const holds = times(seats, (seat) => new InlineConstraint(grammars, wide(round * seats + seat), []));
    for (const hold of holds) write(hold, 400);
    most = Math.max(most, kept() - before);
  }
  t.ok(most < stores / 2 + seats * perSeat, `${most} bytes`);
  // Half of it was measured; three times as much where each grammar keeps all places that its replies reach.
  t.ok(most < MAX_KEPT * LEAST_REACH, `${most} bytes`);
});

t.test('the memory of one lookup is bounded', async (t) => {
  const texts = times(4000, (i) => (i * 7919).toString(36).padStart(30, 'q'));
  const many = vocabulary(texts.map((text) => Buffer.from(Array.from(text).reverse().join(''))));
  const gbnf = `root ::= ${texts.map((text) => literal(Array.from(text).reverse().join(''))).join(' | ')}`;
  const grammar = MaskGrammar.of(gbnf, sortedTokens(many.bytes, many.starts, many.ends), { work: 1e9, share: () => 1 });
  t.throws(() => grammar?.mask(grammar.start), { name: 'GrammarTooExpensive' });
});
