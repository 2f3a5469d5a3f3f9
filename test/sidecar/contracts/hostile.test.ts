/**
 * Input that is meant to be slow. Benches measure times; here the behaviour is tested: what is far too deep or too
 * numerous is refused at its first exceeded bound, and what is wide but allowed is accepted completely.
 */
import t from 'tap';
import { parseChat, parseDecisions } from '../../../sidecar/contracts/parse.js';
import { toChatRequest } from '../../../sidecar/contracts/chat.js';
import { type Json, bytesOf, withAt } from '../../support/bodies.js';
import { HOSTILE } from '../../support/hostile.js';

const USER: Json = [{ role: 'user', content: 'x' }];

/** Refused as text, before a value exists. */
const UNPARSED = new Set(['parameters: nested schemas, past the 64 levels', 'brackets']);

function withParameters(properties: Json): Json {
  const parameters = { type: 'object', properties };
  return { model: 'm', messages: USER, tools: [{ type: 'function', function: { name: 'f', parameters } }] };
}

t.test('a property schema as deep as a body may be', (t) => {
  let schema: Json = { type: 'string' };
  // tools > tool > function > parameters > properties are six levels; two are left free.
  for (let i = 0; i < 55; i++) schema = { items: schema };
  t.equal(parseChat(bytesOf(withParameters({ a: schema }))).kind, 'ok');
  t.end();
});

t.test('wide parameters', (t) => {
  const many = (count: number, value: Json) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, value]));
  const names = Array.from({ length: 10_000 }, (_, i) => `p${i}`);
  const wide = withParameters(many(10_000, { type: 'string', anyOf: [{}, {}], enum: ['a', 1] }));
  t.equal(parseChat(bytesOf(withAt(wide, ['tools', 0, 'function', 'parameters', 'required'], names))).kind, 'ok');
  const twice = withAt(wide, ['tools', 0, 'function', 'parameters', 'required'], [...names, 'p0']);
  t.match(parseChat(bytesOf(twice)), {
    error: { message: 'tools[0].function.parameters.required must not hold an item twice' },
  });
  t.end();
});

t.test('a pattern of the caller is never run', (t) => {
  const pattern = '^(a+)+$(('.repeat(100);
  const property = { type: 'string', pattern, const: 'a'.repeat(10_000), default: `${'a'.repeat(10_000)}!` };
  t.equal(parseChat(bytesOf(withParameters({ a: property }))).kind, 'ok', 'not even if it is no valid expression');
  t.end();
});

t.test('the maximum of messages and parts', (t) => {
  const parts = Array.from({ length: 16 }, () => ({ type: 'text', text: 'x' }));
  const messages = Array.from({ length: 4096 }, () => ({ role: 'user', content: parts }));
  const body = { model: 'm', messages };
  t.equal(parseChat(bytesOf(body)).kind, 'ok');
  const last = withAt(body, ['messages', 4095, 'content', 15, 'text'], '');
  t.match(parseChat(bytesOf(last)), { error: { param: 'messages[4095].content[15].text' } });
  t.end();
});

t.test('texts that make an expression backtrack', (t) => {
  const blank = ' '.repeat(1_000_000);
  t.match(parseDecisions('decisions', bytesOf({ model: 'm', input: blank, questions: [] })), {
    error: { message: 'input must not be blank' },
  });
  const name = `${'a'.repeat(1_000_000)}!`;
  t.match(parseChat(bytesOf({ model: name, messages: USER })), {
    error: { message: 'model must have at most 128 characters' },
  });
  const escapes = '\\'.repeat(1_000_000);
  t.equal(parseChat(bytesOf({ model: 'm', messages: [{ role: 'user', content: escapes }] })).kind, 'ok');
  t.equal(parseChat(bytesOf({ model: 'm', messages: [{ role: 'user', content: '"'.repeat(1_000_000) }] })).kind, 'ok');
  t.end();
});

t.test('very many names', (t) => {
  const names = Array.from({ length: 100_000 }, (_, i) => `"k${i}":0`).join(',');
  t.match(parseChat(bytesOf(`{${names}}`)), { error: { message: 'model is required' } });
  t.match(parseChat(bytesOf(`{${names},"k0":1}`)), { error: { message: /must not repeat a name/ } });
  t.end();
});

/** A value that counts how often any part of it is read. */
function counted(value: unknown, count: () => void): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return new Proxy(value, {
    get(target, name) {
      count();
      return counted(Reflect.get(target, name), count);
    },
    ownKeys(target) {
      count();
      return Reflect.ownKeys(target);
    },
  });
}

/** Reads of a chat body’s parts until its outcome. */
function readsOf(body: string): number {
  let reads = 0;
  const count = (): void => {
    reads++;
  };
  toChatRequest(counted(JSON.parse(body), count));
  return reads;
}

t.test('the reads of a check grow with the body and no faster', (t) => {
  const valued = HOSTILE.filter(({ route, name }) => route === 'chat' && !UNPARSED.has(name));
  t.ok(valued.length > 5);
  for (const { name, body } of valued) {
    const small = readsOf(body(20_000));
    const large = readsOf(body(200_000));
    t.ok(large <= 11 * small + 1000, `${name}: ${small} reads, ${large} for ten times the bytes`);
  }
  t.end();
});
