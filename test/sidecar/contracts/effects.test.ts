/** What the tables of test/contract say of fields that the compatible contract takes: they change the request, or nothing. */
import t from 'tap';
import { CHAT_SCHEMA } from '../../../sidecar/contracts/chat-schema.js';
import { COMPATIBLE_SCHEMA } from '../../../sidecar/contracts/compatible-schema.js';
import { MESSAGES_SCHEMA } from '../../../sidecar/contracts/messages-schema.js';
import { parseChat } from '../../../sidecar/contracts/parse.js';
import { RESPONSES_SCHEMA } from '../../../sidecar/contracts/responses-schema.js';
import { BODY_FIELDS } from '../../contract/tables/compatible-tables.js';
import { MESSAGES_FIELDS } from '../../contract/tables/messages-tables.js';
import { RESPONSES_FIELDS } from '../../contract/tables/responses-tables.js';
import { bytesOf, type Json } from '../../support/bodies.js';

const keysOf = (schema: unknown): string[] => Object.keys((schema as { readonly properties: object }).properties);
const CHAT = { model: 'm', messages: [{ role: 'user', content: 'x' }] };

/** By form: a body, its schema, the rows, fields that have no row, and fields whose first value need not change the request. */
const FORMS = {
  compatible: [CHAT, COMPATIBLE_SCHEMA, BODY_FIELDS, keysOf(CHAT_SCHEMA), []],
  responses: [
    { model: 'm', input: 'x' },
    RESPONSES_SCHEMA,
    RESPONSES_FIELDS,
    ['model', 'input', ...keysOf(COMPATIBLE_SCHEMA)],
    RESPONSES_FIELDS.map(({ field }) => field),
  ],
  messages: [CHAT, MESSAGES_SCHEMA, MESSAGES_FIELDS, ['model', 'messages'], ['tool_choice']],
} as const;

for (const [form, [plain, schema, rows, others, alike]] of Object.entries(FORMS)) {
  const requestOf = (more: Readonly<Record<string, Json>>): string => {
    const parsed = parseChat(bytesOf(JSON.stringify({ ...plain, ...more })), form as keyof typeof FORMS);
    if (parsed.kind === 'invalid') throw new Error(parsed.error.message);
    return JSON.stringify(parsed.request);
  };

  t.test(`${form}: fields change the request or have no effect, as their rows say`, async (t) => {
    const unchanged = requestOf({});
    for (const { field, effect, taken } of rows) {
      const [first] = taken;
      if (effect !== 'used') {
        for (const value of taken) t.equal(requestOf({ [field]: value }), unchanged, `${field} has no effect`);
      } else if (first !== undefined && !alike.some((one) => one === field)) {
        t.not(requestOf({ [field]: first }), unchanged, `${field} has an effect`);
      }
    }
    const known = new Set<string>([...others, ...rows.map(({ field }) => field)]);
    t.same(
      keysOf(schema).filter((field) => !known.has(field)),
      [],
      'no field is missing',
    );
  });
}
