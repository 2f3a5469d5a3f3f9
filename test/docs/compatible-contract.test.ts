/**
 * docs/contract.md’s tables of the compatible contract compared with the code, field by field and keyword by keyword.
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
  type FieldRow,
} from '../contract/tables/compatible-tables.js';
import { MESSAGES_FIELDS } from '../contract/tables/messages-tables.js';
import { RESPONSES_FIELDS } from '../contract/tables/responses-tables.js';
import { bytesOf, type Json } from '../support/bodies.js';
import { sourceRoot } from '../support/source-root.js';
import { tablesOf } from './figures.js';

const page = readFileSync(join(sourceRoot, 'docs/contract.md'), 'utf8');

/** The text from a heading to the next one of its level or above. */
function section(heading: string): string {
  const [, text] = page.split(`\n${heading}\n`);
  if (text === undefined) throw new Error(`docs/contract.md has no heading ${heading}`);
  const level = heading.indexOf(' ');
  return text.split(new RegExp(`^#{1,${level}} `, 'm'))[0] ?? '';
}

const namesIn = (text: string): string[] => [...text.matchAll(/`([\w$]+)`/g)].map(([, name = '']) => name);
const keysOf = (schema: unknown): string[] => Object.keys((schema as { readonly properties: object }).properties);
const compatible = section('## The compatible contract');

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

t.test('every field of the body is in the page’s table, with its effect', async (t) => {
  const [table] = tablesOf(compatible);
  const effects = new Map(
    (table?.rows ?? []).flatMap(([field = '', effect = '']) => namesIn(field).map((name) => [name, effect])),
  );
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
  for (const field of MESSAGE_FIELDS) t.ok(effects.has(field), `${field} of a message`);
  for (const [name] of REFUSED_VALUES) t.equal(effects.get(name), 'refused', name);
});

t.test('every field of the Responses API is on the page, with its effect', async (t) => {
  const names = new Set(namesIn(section('### Responses').replaceAll('.', '` `')));
  const strict = new Set(keysOf(CHAT_SCHEMA));
  // The page has them once, for both routes.
  const inert = new Set(INERT_ROWS.map(({ field }) => field));
  t.strictSame(
    keysOf(RESPONSES_SCHEMA).filter((field) => !strict.has(field) && !names.has(field) && !inert.has(field)),
    [],
    'no field is missing',
  );
  const effectless = ({ effect }: FieldRow): boolean => effect !== 'used';
  for (const { field, taken } of RESPONSES_FIELDS.filter(effectless)) {
    for (const value of taken) t.notOk(changes('responses', field, value), `${field} has none`);
  }
});

t.test('every field of the Messages API is in the page’s table, with its effect', async (t) => {
  const [table] = tablesOf(section('### Messages API'));
  const effects = new Map(
    (table?.rows ?? []).flatMap(([field = '', effect = '']) => namesIn(field).map((name) => [name, effect])),
  );
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
  const [table] = tablesOf(section('### JSON schema'));
  const onPage = (table?.rows ?? [])
    .filter(([, effect = '']) => !effect.startsWith('refused'))
    .flatMap(([keywords = '']) => namesIn(keywords));
  t.strictSame([...new Set(onPage)].sort(), keysOf(WIDE_SCHEMA.then).sort());
  t.equal(onPage.length, new Set(onPage).size, 'each once');
});
