/**
 * What docs/api-chat.md and docs/compatible.md say of the compatible contract compared with the code, field by field and keyword by keyword.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CHAT_SCHEMA } from '../../sidecar/contracts/chat-schema.js';
import { COMPATIBLE_SCHEMA, WIDE_SCHEMA } from '../../sidecar/contracts/compatible-schema.js';
import { MESSAGES_SCHEMA } from '../../sidecar/contracts/messages-schema.js';
import { parseChat } from '../../sidecar/contracts/parse.js';
import { RESPONSES_SCHEMA } from '../../sidecar/contracts/responses-schema.js';
import type { ChatRequest } from '../../sidecar/contracts/requests.js';
import {
  BODY_FIELDS,
  INERT_ROWS,
  MESSAGE_FIELDS,
  REFUSED_VALUES,
  type Effect,
} from '../contract/tables/compatible-tables.js';
import { MESSAGES_FIELDS } from '../contract/tables/messages-tables.js';
import { RESPONSES_FIELDS } from '../contract/tables/responses-tables.js';
import { bytesOf, type Json } from '../support/bodies.js';
import { sourceRoot } from '../support/source-root.js';
import { tablesOf } from './figures.js';

const page = readFileSync(join(sourceRoot, 'docs/compatible.md'), 'utf8');
const api = readFileSync(join(sourceRoot, 'docs/api-chat.md'), 'utf8');

/** The text from a heading to the next one of its level or above. */
function section(heading: string, text = page): string {
  const [, found] = text.split(`\n${heading}\n`);
  if (found === undefined) throw new Error(`no page has the heading ${heading}`);
  const level = heading.indexOf(' ');
  return found.split(new RegExp(`^#{1,${level}} `, 'm'))[0] ?? '';
}

const namesIn = (text: string): string[] => [...text.matchAll(/`([\w$]+)`/g)].map(([, name = '']) => name);
const keysOf = (schema: unknown): string[] => Object.keys((schema as { readonly properties: object }).properties);

/** The effect of each field of shapes in docs/api-chat.md, by the beginning of its meaning; the last shape that has a field counts. */
function effectsOf(...shapes: readonly string[]): Map<string, Effect> {
  return new Map(
    shapes.flatMap((shape) => {
      const text = section(`### ${shape}`, api);
      const own = [...text.matchAll(/^- (`[^(]*) \(.*?\)(?:: (.*))?$/gm)].flatMap(([, fields = '', meaning = '']) =>
        namesIn(fields).map((name): [string, Effect] => [
          name,
          meaning.startsWith('Accepted') ? 'ignored' : meaning.startsWith('Only') ? 'refused' : 'used',
        ]),
      );
      // A row that an earlier shape has is not repeated.
      const referred = [...text.matchAll(/^- (`.*`): as in \[(\w+)\]/gm)].flatMap(([, fields = '', other = '']) => {
        const theirs = effectsOf(other);
        return namesIn(fields).map((name): [string, Effect] => [name, theirs.get(name) ?? 'used']);
      });
      return [...own, ...referred];
    }),
  );
}

type Form = 'compatible' | 'responses' | 'messages';

function request(body: object, form: Form): ChatRequest {
  const parsed = parseChat(bytesOf(JSON.stringify(body)), form);
  if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
  return parsed.request;
}

/** Whether a value of a field changes the request. */
function changes(form: Form, field: string, value: Json): boolean {
  const plain =
    form !== 'responses' ? { model: 'm', messages: [{ role: 'user', content: 'x' }] } : { model: 'm', input: 'x' };
  return JSON.stringify(request({ ...plain, [field]: value }, form)) !== JSON.stringify(request(plain, form));
}

t.test('every field of a chat is on the pages, with its effect', async (t) => {
  const effects = effectsOf('ChatCompletionRequest', 'CompatibleChatRequest');
  for (const { field, effect, taken } of BODY_FIELDS) {
    t.equal(effects.get(field), effect, field);
    for (const [i, value] of taken.entries()) {
      if (i === 0 && effect === 'used') t.ok(changes('compatible', field, value), `${field} has an effect`);
      if (effect !== 'used') t.notOk(changes('compatible', field, value), `${field} has none`);
    }
  }
  const strict = new Set(keysOf(CHAT_SCHEMA));
  const listed = new Set(BODY_FIELDS.map(({ field }) => field));
  t.strictSame(
    keysOf(COMPATIBLE_SCHEMA).filter((field) => !strict.has(field) && !listed.has(field)),
    [],
    'no field is missing',
  );
  const ofMessages = new Set(namesIn(section('### Messages')));
  for (const field of MESSAGE_FIELDS) t.ok(ofMessages.has(field), `${field} of a message`);
  const refused = new Set(namesIn(/^Refused values: .*(?:\n.+)*/m.exec(section('## Chat'))?.[0] ?? ''));
  for (const [name] of REFUSED_VALUES) t.ok(refused.has(name), name);
});

t.test('every field of the Responses API is on the page, with its effect', async (t) => {
  const effects = effectsOf('CompatibleChatRequest', 'ResponsesRequest');
  const own = effectsOf('ResponsesRequest');
  // In one row with others, which docs/api-chat.md does not repeat for this route.
  const inert = new Set(INERT_ROWS.map(({ field }) => field));
  t.strictSame(
    keysOf(RESPONSES_SCHEMA).filter((field) => !(inert.has(field) ? effects : own).has(field)),
    [],
    'no field is missing',
  );
  for (const { field, effect, taken } of RESPONSES_FIELDS) {
    t.equal(effects.get(field), effect, field);
    if (effect !== 'used') for (const value of taken) t.notOk(changes('responses', field, value), `${field} has none`);
  }
});

t.test('every field of the Messages API is on the page, with its effect', async (t) => {
  const effects = effectsOf('MessagesRequest');
  const listed = new Set(['model', 'messages', ...MESSAGES_FIELDS.map(({ field }) => field)]);
  t.strictSame(
    keysOf(MESSAGES_SCHEMA).filter((field) => !listed.has(field)),
    [],
    'no field is missing',
  );
  for (const { field, effect, taken } of MESSAGES_FIELDS) {
    t.equal(effects.get(field), effect, field);
    for (const [i, value] of taken.entries()) {
      if (i === 0 && effect === 'used' && field !== 'tool_choice')
        t.ok(changes('messages', field, value), `${field} has an effect`);
      if (effect !== 'used') t.notOk(changes('messages', field, value), `${field} has none`);
    }
  }
});

t.test('the page’s keywords of JSON schemas are those that the contract accepts', async (t) => {
  const [table] = tablesOf(section('## JSON schema'));
  const onPage = (table?.rows ?? [])
    .filter(([, effect = '']) => !effect.startsWith('refused'))
    .flatMap(([keywords = '']) => namesIn(keywords));
  t.strictSame([...new Set(onPage)].sort(), keysOf(WIDE_SCHEMA.then).sort());
  t.equal(onPage.length, new Set(onPage).size, 'each once');
});
