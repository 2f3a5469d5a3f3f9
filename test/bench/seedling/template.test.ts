/** Tools as the seedling's template writes them: as in its training, whatever keywords their schemas have. */
import t from 'tap';
import { CHAT_TEMPLATE } from '../../../bench/models/chat-template.js';
import { chatAt } from '../../../bench/seedling/mix.js';
import { SEEDLING_TEMPLATE } from '../../../bench/seedling/template.js';
import { makeTemplate } from '../../../engine/prompt/template.js';

type Conversation = ReturnType<typeof chatAt>['conversation'];

function renderer(source: string): (conversation: Conversation) => string {
  const made = makeTemplate(source, { bos: '', eos: '<|im_end|>' });
  if (made.kind === 'bad') throw new Error(made.problem);
  return (conversation) => {
    const rendered = made.template.render(conversation, { addGenerationPrompt: true });
    if (rendered.kind === 'failed') throw new Error('not rendered');
    return rendered.text;
  };
}

const [whole, trained] = [renderer(CHAT_TEMPLATE), renderer(SEEDLING_TEMPLATE)];

/** The JSON that the model reads for a tool. */
function written(tool: object): unknown {
  const text = trained({ messages: [{ role: 'user', content: 'Hi' }], tools: [tool] });
  return JSON.parse(/<tools>\n(.*)\n<\/tools>/.exec(text)?.[1] ?? 'null');
}

const tool = (parameters: unknown, more: object = {}): object => ({
  type: 'function',
  function: { name: 'f', description: 'Does it', ...more, parameters },
});

/** An object's schema as in training. */
const object = (properties: Readonly<Record<string, unknown>>): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
});

t.test('what it was trained on is written as it was', (t) => {
  let offered = 0;
  for (let at = 0; at < 300; at++) {
    const { conversation } = chatAt(3, at, 'train');
    if (conversation.tools?.length) offered += 1;
    t.equal(trained(conversation), whole(conversation));
  }
  t.ok(offered > 20, `${offered} with tools`);
  t.end();
});

t.test('keywords that are not in its training are left out, at each depth', (t) => {
  const text = { type: 'string' };
  const added = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'A title',
    description: 'A description',
    additionalProperties: false,
    default: null,
  };
  const cases: readonly (readonly [title: string, schema: unknown, expected: unknown])[] = [
    ['a closed object', { ...object({ city: text }), ...added }, object({ city: text })],
    ['bounds', object({ city: { ...text, ...added, minLength: 1, pattern: '^a' } }), object({ city: text })],
    ['an optional property', { ...object({ city: text }), required: [] }, object({ city: text })],
    ['a number', object({ n: { type: 'number', minimum: 0 } }), object({ n: { type: 'integer' } })],
    [
      'a nullable',
      object({ u: { type: ['null', 'string'], enum: ['a', null] } }),
      object({ u: { ...text, enum: ['a'] } }),
    ],
    [
      'a union',
      object({ u: { anyOf: [{ type: 'null' }, { ...text, ...added }, { type: 'integer' }] } }),
      object({ u: text }),
    ],
    ['a constant', object({ u: { const: 'a' } }), object({ u: { ...text, enum: ['a'] } })],
    ['numbers to choose from', object({ u: { type: 'integer', enum: [1, 2] } }), object({ u: { type: 'integer' } })],
    [
      'an object in an object',
      { ...object({ place: { ...object({ city: { ...text, ...added } }), ...added } }), ...added },
      object({ place: object({ city: text }) }),
    ],
    ['a list', object({ all: { type: 'array', items: text } }), object({ all: { type: 'array' } })],
    [
      'names of Python’s methods',
      object({ items: text, keys: text, get: text }),
      object({ items: text, keys: text, get: text }),
    ],
    ['no type', { properties: { city: true } }, object({ city: text })],
    ['a reference', object({ u: { $ref: '#/$defs/U' } }), object({ u: text })],
    ['no schema', undefined, object({})],
  ];
  for (const [title, schema, expected] of cases)
    t.strictSame(written(tool(schema, { strict: true })), tool(expected), title);
  t.strictSame(written({ type: 'function', function: { name: 'f' } }), tool(object({}), { description: '' }));
  let deep: object = object({});
  for (let at = 0; at < 100; at++) deep = { type: 'object', properties: { a: deep } };
  t.ok(JSON.stringify(written(tool(deep))).length < 1000, 'a deep schema is cut');
  t.end();
});
