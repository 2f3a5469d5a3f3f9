/** What JSON leaves open, decided once for all routes: a body of each kind. test/sidecar/contracts/json.test.ts has all of them. */
import { FULL_CHAT, FULL_DECISIONS, FULL_SYSTEMONE, type Json, bytesOf } from '../../support/bodies.js';
import { CANARY, type ContractCase, type Refusal, type TableRoute, whole } from './rule.js';

const FULL: Readonly<Record<TableRoute, Json>> = {
  chat: FULL_CHAT,
  decisions: FULL_DECISIONS,
  systemone: FULL_SYSTEMONE,
};

const body = (predicate: string): Refusal => ({ message: `the body ${predicate}`, param: null });

const SYNTAX = body('must be JSON');
const ENCODING = body('must be UTF-8');
const MARK = body('must not begin with a byte order mark');
const REPEATED = body('must not repeat a name within one object');
const SURROGATE = body('must not hold half a surrogate pair');
const NESTING = body('must not nest deeper than 64 levels');
const OBJECT = body('must be an object');

/** A valid body of a route with a member before its others. */
const led = (route: TableRoute, member: string): string => `{${member},${JSON.stringify(FULL[route]).slice(1)}`;

/** Bytes before and after a text. */
const bytes = (before: readonly number[], text: string, after: readonly number[] = []): Uint8Array =>
  Uint8Array.from([...before, ...bytesOf(text), ...after]);

function casesOf(route: TableRoute): ContractCase[] {
  const full = JSON.stringify(FULL[route]);
  const bodies: readonly (readonly [name: string, body: string | Uint8Array, refusal?: Refusal])[] = [
    ['nothing', '', SYNTAX],
    ['something after it', `${full} ${CANARY}`, SYNTAX],
    ['space around it', `\r\n\t ${full} \n`],
    ['an array', `[${full}]`, OBJECT],
    ['a text', `"${CANARY}"`, OBJECT],
    ['a number', '1e999', OBJECT],
    ['null', 'null', OBJECT],
    ['a byte order mark', bytes([0xef, 0xbb, 0xbf], full), MARK],
    ['a byte that is not UTF-8', bytes([], `{"${CANARY}`, [0xff, 0x22, 0x7d]), ENCODING],
    ['a name twice deep inside', led(route, `"x":[{"${CANARY}":{"a":1,"a":1}}]`), REPEATED],
    ['a lone high surrogate', led(route, `"x":"${CANARY}\\ud800"`), SURROGATE],
    ['65 levels', led(route, `"x":${'['.repeat(64)}${']'.repeat(64)}`), NESTING],
  ];
  return bodies.map(([name, text, refusal]) => whole(route, name, text, refusal));
}

const chat = (member: string): string => `{"model":"m","messages":[{"role":"user","content":"x"}],${member}}`;

const chatNumbers: readonly (readonly [member: string, refusal?: Refusal])[] = [
  ['"seed":9007199254740993'],
  ['"seed":-9007199254740993'],
  ['"seed":9223372036854775807'],
  ['"seed":-9223372036854775808'],
  ['"seed":9223372036854776000'],
  ['"seed":1.0'],
  ['"seed":1e3'],
  ['"seed":-0'],
  ['"seed":9223372036854778000', { message: 'seed must be at most 9223372036854776000', param: 'seed' }],
  ['"seed":18446744073709551615', { message: 'seed must be at most 9223372036854776000', param: 'seed' }],
  ['"seed":1e999', { message: 'seed must be an integer', param: 'seed' }],
  ['"seed":-1e999', { message: 'seed must be an integer', param: 'seed' }],
  ['"seed":"NaN"', { message: 'seed must be an integer', param: 'seed' }],
  [`"seed":1${'0'.repeat(5000)}`, { message: 'seed must be an integer', param: 'seed' }],
  ['"n":2.0'],
  ['"n":2.0000000000000000001'],
  ['"n":1.5', { message: 'n must be an integer', param: 'n' }],
  ['"n":1e0'],
  ['"temperature":1e999', { message: 'temperature must be a number', param: 'temperature' }],
  ['"temperature":"NaN"', { message: 'temperature must be a number', param: 'temperature' }],
  ['"temperature":-0'],
  ['"temperature":1e-400'],
  ['"user":"\\ud83d\\ude00"'],
  ['"user":"\\\\ud800"'],
  ['"user":"\\u0000"'],
];

export const JSON_CASES: readonly ContractCase[] = [
  ...(['chat', 'decisions', 'systemone'] as const).flatMap(casesOf),
  ...chatNumbers.map(([member, refusal]) => whole('chat', member.slice(0, 60), chat(member), refusal)),
  // Deep but allowed, under a name that systemone accepts.
  whole('systemone', '64 levels', led('systemone', `"x":${'['.repeat(63)}${']'.repeat(63)}`)),
];
