/** POST /embeddings and POST /rerank (docs/contract.md#post-embeddings and #post-rerank): bodies of models that make vectors or scores. */
import { closed, MAX_TEXT, MODEL_ID, NON_EMPTY_TEXT, exactly } from './common-schema.js';
import { placeOf, type Parsed, refuse, refuseAt } from './body-refusals.js';
import type { EmbeddingRequest, RerankRequest } from './requests.js';
import { compile, type ValueOf } from './validator.js';

/** Inputs of one request. */
export const MAX_INPUTS = 2048;

/** The longest vector that may be asked for, in numbers. */
const MAX_DIMENSIONS = 65_536;

const TOKEN = { minimum: 0, maximum: 0x7fffffff } as const;

/** A string, a list of strings, tokens, or a list of lists of tokens: {@link kindOf} finds out which, and that it is one of these. */
const INPUT = {
  type: ['string', 'array'],
  minLength: 1,
  maxLength: MAX_TEXT,
  minItems: 1,
  items: {
    type: ['string', 'integer', 'array'],
    minLength: 1,
    maxLength: MAX_TEXT,
    ...TOKEN,
    minItems: 1,
    items: { type: 'integer', ...TOKEN },
  },
} as const;

export const EMBEDDINGS_SCHEMA = closed(['model', 'input'], {
  model: MODEL_ID,
  input: INPUT,
  encoding_format: { enum: ['float', 'base64'] },
  dimensions: { type: 'integer', minimum: 1, maximum: MAX_DIMENSIONS },
  user: { type: 'string', minLength: 1, maxLength: 256 },
  truncate: { type: 'boolean' },
});

export const RERANK_SCHEMA = closed(['model', 'query', 'documents'], {
  model: MODEL_ID,
  query: NON_EMPTY_TEXT,
  documents: {
    type: 'array',
    minItems: 1,
    maxItems: MAX_INPUTS,
    items: {
      type: ['string', 'object'],
      minLength: 1,
      maxLength: MAX_TEXT,
      if: { type: 'object' },
      then: exactly({ text: NON_EMPTY_TEXT }),
    },
  },
  top_n: { type: 'integer', minimum: 1, maximum: 1_000_000 },
  return_documents: { type: 'boolean' },
  user: { type: 'string', minLength: 1, maxLength: 256 },
  truncate: { type: 'boolean' },
});

type EmbeddingsBody = ValueOf<typeof EMBEDDINGS_SCHEMA>;

const checkEmbeddings = compile<EmbeddingsBody>(EMBEDDINGS_SCHEMA, { written: 'embeddings' });
const checkRerank = compile<ValueOf<typeof RERANK_SCHEMA>>(RERANK_SCHEMA, { written: 'rerank' });

const NO_OPEN_MAPS: ReadonlySet<string> = new Set();

/** Checks the body of POST /embeddings. */
export function toEmbeddingRequest(value: unknown): Parsed<EmbeddingRequest> {
  const outcome = checkEmbeddings(value);
  if (!outcome.ok) return refuseAt(placeOf(outcome.segments, NO_OPEN_MAPS), outcome.message);
  const { model, input, encoding_format: encoding = 'float', dimensions, user, truncate = false } = outcome.value;
  const inputs = inputsOf(input);
  if (inputs === undefined)
    return refuse('input', 'must be a string, an array of strings, an array of tokens or an array of arrays of tokens');
  if (inputs.length > MAX_INPUTS) return refuse('input', `must have at most ${MAX_INPUTS} items`);
  const params = {
    route: 'embeddings' as const,
    model,
    inputs: inputs.length,
    encoding,
    ...(dimensions !== undefined && { dimensions }),
    ...(user !== undefined && { user }),
  };
  return { kind: 'ok', request: { params, inputs, truncate, single: !Array.isArray(input) || isTokens(input) } };
}

/** Undefined if its items are of several kinds. */
function inputsOf(input: EmbeddingsBody['input']): readonly (string | readonly number[])[] | undefined {
  if (typeof input === 'string') return [input];
  if (isTokens(input)) return [input];
  const [first] = input;
  const alike = input.every((each) => typeof each !== 'number' && typeof each === typeof first);
  return alike ? (input as readonly (string | readonly number[])[]) : undefined;
}

function isTokens(input: readonly unknown[]): input is readonly number[] {
  return input.every((each) => typeof each === 'number');
}

/** Checks the body of POST /rerank. */
export function toRerankRequest(value: unknown): Parsed<RerankRequest> {
  const outcome = checkRerank(value);
  if (!outcome.ok) return refuseAt(placeOf(outcome.segments, NO_OPEN_MAPS), outcome.message);
  const { model, query, documents: given, top_n: top, return_documents: returns, user, truncate } = outcome.value;
  const documents = given.map((each) => (typeof each === 'string' ? each : each.text));
  const params = {
    route: 'rerank' as const,
    model,
    inputs: documents.length,
    top: Math.min(top ?? documents.length, documents.length),
    ...(returns && { documents }),
    ...(user !== undefined && { user }),
  };
  return { kind: 'ok', request: { params, query, documents, truncate: truncate === true } };
}
