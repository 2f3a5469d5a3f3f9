/** The contract's schemas, the very objects of the checks, as named parts of an OpenAPI document, with words. */
import { ACCOUNT_BALANCE, ACCOUNT_LIMIT, USAGE_BUCKET, USAGE_RESULT } from '../../contracts/account-schemas.js';
import { ANSWER_SCHEMAS, type AnswerKind } from '../../contracts/answer-schemas.js';
import { BATCH_PROBLEM, BATCH_REQUEST } from '../../contracts/batch-schemas.js';
import { CHAT_SCHEMA } from '../../contracts/chat-schema.js';
import { COMPATIBLE_SCHEMA } from '../../contracts/compatible-schema.js';
import { DECISIONS_SCHEMA } from '../../contracts/decisions.js';
import { EMBEDDINGS_SCHEMA, RERANK_SCHEMA } from '../../contracts/inputs.js';
import { MESSAGES_SCHEMA } from '../../contracts/messages-schema.js';
import { RESPONSES_SCHEMA } from '../../contracts/responses-schema.js';
import { SYSTEMONE_SCHEMA } from '../../contracts/systemone.js';
import { COMMON_NOTES, DEFAULTS, NOTES, SHAPES } from './notes.js';

/** A JSON schema, or a part of one. */
export type Schema = Readonly<Record<string, unknown>>;

/** Keywords of our validator's own, and where it keeps its definitions. */
const PRIVATE: ReadonlySet<string> = new Set(['x-message', 'x-unlisted', '$defs', 'discriminator']);

/** Formats that no one else knows; the field's description says what they ask. */
const PRIVATE_FORMAT = 'image-url';

/** Where the contracts' own references point to, and what that is called here. */
const REFERENCES: Readonly<Record<string, string>> = {
  '#/$defs/property': 'PropertySchema',
  '#/$defs/schema': 'AnySchema',
};

const request = CHAT_SCHEMA as Schema;
const compatible = COMPATIBLE_SCHEMA as Schema;
const message = at(request, 'properties', 'messages', 'items');
const userMessage = at(message, 'oneOf', '1');
const part = at(userMessage, 'properties', 'content', 'items');
const tool = at(request, 'properties', 'tools', 'items');
const question = at(DECISIONS_SCHEMA, 'properties', 'questions', 'items');
const systemOneQuestion = at(SYSTEMONE_SCHEMA, 'properties', 'questions', 'additionalProperties');
const choice = at(answer('ChatCompletion'), 'properties', 'choices', 'items');
const decision = at(answer('Decisions'), 'properties', 'answers', 'additionalProperties');
const systemOneAnswer = at(answer('SystemOne'), 'properties', 'answers', 'additionalProperties');

/** Every part that has a name, in the order of the documentation. */
const PARTS: readonly (readonly [name: string, schema: Schema])[] = [
  ['ChatCompletionRequest', request],
  ['Message', message],
  ['SystemMessage', at(message, 'oneOf', '0')],
  ['UserMessage', userMessage],
  ['AssistantMessage', at(message, 'oneOf', '2')],
  ['ToolMessage', at(message, 'oneOf', '3')],
  ['ContentPart', part],
  ['TextPart', at(part, 'oneOf', '0')],
  ['ImagePart', at(part, 'oneOf', '1')],
  ['ToolCall', at(message, 'oneOf', '2', 'properties', 'tool_calls', 'items')],
  ['Tool', tool],
  ['ToolParameters', at(tool, 'properties', 'function', 'properties', 'parameters')],
  ['PropertySchema', at(request, '$defs', 'property')],
  ['CompatibleChatRequest', compatible],
  ['ResponsesRequest', RESPONSES_SCHEMA],
  ['MessagesRequest', MESSAGES_SCHEMA],
  ['AnySchema', at(compatible, '$defs', 'schema')],
  ...answers('ChatCompletion'),
  ['CompletionChoice', choice],
  ['CompletionToolCall', at(choice, 'properties', 'message', 'properties', 'tool_calls', 'items')],
  ['Usage', at(answer('ChatCompletion'), 'properties', 'usage')],
  ...answers('ChatCompletionChunk', 'UsageChunk', 'PricedCompletion'),
  ['PricedUsage', at(answer('PricedCompletion'), 'properties', 'usage')],
  ...answers('PricedUsageChunk', 'CountedChunk', 'TieredChunk', 'ModelList'),
  ['Model', at(answer('ModelList'), 'properties', 'data', 'items')],
  ...answers('DescribedModelList', 'DescribedModel', 'UsagePage'),
  ['UsageBucket', USAGE_BUCKET],
  ['UsageResult', USAGE_RESULT],
  ...answers('Account'),
  ['AccountLimit', ACCOUNT_LIMIT],
  ['AccountBalance', ACCOUNT_BALANCE],
  ...answers('Response', 'ResponseEvent', 'MessageObject', 'MessageEvent', 'MessageError', 'TokenCount'),
  ['DecisionsRequest', DECISIONS_SCHEMA],
  ['Question', question],
  ['YesNoQuestion', at(question, 'oneOf', '0')],
  ['ChoiceQuestion', at(question, 'oneOf', '1')],
  ['ScoreQuestion', at(question, 'oneOf', '2')],
  ...answers('Decisions'),
  ['DecisionAnswer', decision],
  ['YesNoAnswer', at(decision, 'oneOf', '0')],
  ['ChoiceAnswer', at(decision, 'oneOf', '1')],
  ['ScoreAnswer', at(decision, 'oneOf', '2')],
  ['SystemOneRequest', SYSTEMONE_SCHEMA],
  ['SystemOneQuestion', systemOneQuestion],
  ['NoulQuestion', at(systemOneQuestion, 'oneOf', '0')],
  ['SystemOneChoiceQuestion', at(systemOneQuestion, 'oneOf', '1')],
  ['SystemOneScoreQuestion', at(systemOneQuestion, 'oneOf', '2')],
  ...answers('SystemOne'),
  ['SystemOneAnswer', systemOneAnswer],
  ['NoulAnswer', at(systemOneAnswer, 'oneOf', '0')],
  ['SystemOneChoiceAnswer', at(systemOneAnswer, 'oneOf', '1')],
  ['SystemOneScoreAnswer', at(systemOneAnswer, 'oneOf', '2')],
  ['EmbeddingsRequest', EMBEDDINGS_SCHEMA],
  ...answers('Embeddings'),
  ['Embedding', at(answer('Embeddings'), 'properties', 'data', 'items')],
  ['RerankRequest', RERANK_SCHEMA],
  ...answers('Ranking'),
  ['RankedDocument', at(answer('Ranking'), 'properties', 'results', 'items')],
  ...answers('File', 'FileList', 'DeletedFile'),
  ['BatchRequest', BATCH_REQUEST],
  ...answers('Batch'),
  ['BatchProblem', BATCH_PROBLEM],
  ...answers('BatchList', 'Error', 'Health', 'HealthState', 'Readiness'),
];

function answer(name: AnswerKind): Schema {
  return ANSWER_SCHEMAS[name] as Schema;
}

/** The pairs of whole answers and frames, each of which is called as it is there. */
function answers(...named: AnswerKind[]): [string, Schema][] {
  return named.map((name) => [name, answer(name)]);
}

const names: ReadonlyMap<unknown, string> = new Map(PARTS.map(([name, schema]) => [schema, name]));

/** `components.schemas`: each named part, with references in place of the named parts inside it. */
export function componentSchemas(): Readonly<Record<string, Schema>> {
  return Object.fromEntries(PARTS.map(([name, schema]) => [name, described(name, copied(schema))]));
}

export function reference(name: string): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

/** A part of a schema. Throws when there is none: then the contract has changed and the list above must follow. */
function at(schema: Schema, ...keys: string[]): Schema {
  let found: unknown = schema;
  for (const key of keys) found = (found as Schema)[key];
  if (typeof found !== 'object' || found === null) throw new Error(`the contract has no ${keys.join('.')}`);
  return found as Schema;
}

/** A copy for readers; named parts inside become references. */
function copied(schema: Schema): Schema {
  const copy: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (PRIVATE.has(keyword) || value === PRIVATE_FORMAT) continue;
    if (keyword === 'properties') copy[keyword] = fieldsOf(value as Readonly<Record<string, unknown>>);
    else copy[keyword] = keyword === 'const' || keyword === 'enum' ? value : inner(value);
  }
  if (isTagged(schema) && schema.oneOf.every((branch) => names.has(branch))) {
    copy['discriminator'] = discriminatorOf(schema);
  }
  return copy;
}

/** Has branches that one field distinguishes. */
function isTagged(schema: Schema): schema is Schema & Tagged {
  const { discriminator, oneOf } = schema as Partial<Tagged>;
  return typeof discriminator?.propertyName === 'string' && Array.isArray(oneOf);
}

/** A schema whose branches one field distinguishes; all its branches are named parts. */
interface Tagged {
  readonly discriminator: { readonly propertyName: string };
  readonly oneOf: readonly { readonly properties: Readonly<Record<string, { readonly const: string }>> }[];
}

function discriminatorOf({ discriminator: { propertyName }, oneOf }: Tagged): object {
  const mapping = oneOf.map((branch) => [
    branch.properties[propertyName]?.const,
    reference(names.get(branch) ?? '')['$ref'],
  ]);
  return { propertyName, mapping: Object.fromEntries(mapping) as object };
}

/** Fields may be called as keywords are: the schema of schemas has `$defs`. */
function fieldsOf(fields: Readonly<Record<string, unknown>>): Schema {
  return Object.fromEntries(Object.entries(fields).map(([field, rule]) => [field, inner(rule)]));
}

function inner(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inner);
  if (typeof value !== 'object' || value === null) return value;
  const name = names.get(value);
  if (name !== undefined) return reference(name);
  const schema = value as Schema;
  const known = REFERENCES[String(schema['$ref'])];
  return known === undefined ? copied(schema) : reference(known);
}

/** With the words of notes.ts on the schema and on its own fields. */
function described(name: string, schema: Schema): Schema {
  const words = SHAPES[name];
  const notes = NOTES[name] && { ...COMMON_NOTES, ...NOTES[name] };
  const defaults = DEFAULTS[name] ?? {};
  const noteOf = (field: string): object => ({
    ...(notes && field in notes && { description: notes[field] }),
    ...(field in defaults && { default: defaults[field] }),
  });
  const fields = schema['properties'] as Readonly<Record<string, Schema>> | undefined;
  return {
    ...(words !== undefined && { description: words }),
    ...schema,
    ...(fields && {
      properties: Object.fromEntries(
        Object.entries(fields).map(([field, rule]) => [field, { ...rule, ...noteOf(field) }]),
      ),
    }),
  };
}
