/**
 * Input that is meant to be slow. Benches measure times; here the behaviour is tested: what is far too deep or too
 * numerous is refused at its first exceeded bound, and what is wide but allowed is accepted completely.
 */
import t from 'tap';
import { parseChat } from '../../../sidecar/contracts/parse.js';
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

t.test('a property schema as deep as a body may be', async (t) => {
  let schema: Json = { type: 'string' };
  // tools > tool > function > parameters > properties are six levels; two are left free.
  for (let i = 0; i < 55; i++) schema = { items: schema };
  t.equal(parseChat(bytesOf(withParameters({ a: schema }))).kind, 'ok');
});

t.test('wide parameters', async (t) => {
  const many = (count: number, value: Json) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, value]));
  const names = Array.from({ length: 10_000 }, (_, i) => `p${i}`);
  const wide = withParameters(many(10_000, { type: 'string', anyOf: [{}, {}], enum: ['a', 1] }));
  t.equal(parseChat(bytesOf(withAt(wide, ['tools', 0, 'function', 'parameters', 'required'], names))).kind, 'ok');
  const twice = withAt(wide, ['tools', 0, 'function', 'parameters', 'required'], [...names, 'p0']);
  t.match(parseChat(bytesOf(twice)), {
    error: { message: 'tools[0].function.parameters.required must not hold an item twice' },
  });
});

t.test('very many names', async (t) => {
  const names = Array.from({ length: 100_000 }, (_, i) => `"k${i}":0`).join(',');
  t.match(parseChat(bytesOf(`{${names}}`)), { error: { message: 'model is required' } });
  t.match(parseChat(bytesOf(`{${names},"k0":1}`)), { error: { message: /must not repeat a name/ } });
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

t.test('the reads of a check grow with the body and no faster', async (t) => {
  const valued = HOSTILE.filter(({ route, name }) => route === 'chat' && !UNPARSED.has(name));
  t.ok(valued.length > 5);
  for (const { name, body } of valued) {
    const small = readsOf(body(20_000));
    const large = readsOf(body(200_000));
    t.ok(large <= 11 * small + 1000, `${name}: ${small} reads, ${large} for ten times the bytes`);
  }
});
