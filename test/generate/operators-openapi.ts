/**
 * The OpenAPI 3.1 document of the routes by which operators manage keys, accounts, grants and a store's prices, docs/operators-openapi.json.
 * Its schemas are made of those that the routes check bodies against; a contract test compares it with what the routes do.
 */
import { GRANT_FIELDS } from '../../sidecar/access/credit.js';
import { ACCOUNT_FIELDS, CHANGEABLE_FIELDS, FIXED_FIELDS, tokenLimitFields } from '../../sidecar/access/key-file.js';
import { DEFAULT_KEYS, MAX_GRACE_MS, MOST_KEYS } from '../../sidecar/api/key-routes.js';
import { componentSchemas } from '../../sidecar/api/openapi/schemas.js';
import { closed } from '../../sidecar/contracts/common-schema.js';
import { CATALOGUE, type CatalogueRow, type ErrorCode } from '../../sidecar/domain/errors.js';
import { PRICE_SCHEMA } from '../../sidecar/usage/prices.js';

type Schema = Readonly<Record<string, unknown>>;

interface Operation {
  readonly path: string;
  readonly method: 'get' | 'post' | 'patch' | 'put';
  readonly id: string;
  readonly summary: string;
  /** Named schema of the body. */
  readonly request?: string;
  readonly status?: 201;
  /** Named schema of the answer. */
  readonly answer: string;
  /** Besides those of each route. */
  readonly errors?: readonly ErrorCode[];
}

const CHANGES = ['unprocessable', 'capacity_exceeded', 'control_plane_overloaded'] as const;

const OPERATIONS: readonly Operation[] = [
  {
    path: '/keys',
    method: 'get',
    id: 'listKeys',
    summary: 'Lists keys without their hashes',
    answer: 'KeyPage',
    errors: ['unprocessable'],
  },
  {
    path: '/keys',
    method: 'post',
    id: 'createKey',
    summary: 'Creates a key; its text is in this answer alone',
    request: 'KeyCreation',
    status: 201,
    answer: 'NewKey',
  },
  {
    path: '/keys/{id}',
    method: 'patch',
    id: 'changeKey',
    summary: 'Changes a key (RFC 7396)',
    request: 'KeyPatch',
    answer: 'Key',
  },
  {
    path: '/keys/{id}/rotate',
    method: 'post',
    id: 'rotateKey',
    summary: 'Creates a key in the place of another one',
    request: 'Rotation',
    status: 201,
    answer: 'NewKey',
  },
  {
    path: '/keys/{id}/revoke',
    method: 'post',
    id: 'revokeKey',
    summary: 'Revokes a key',
    request: 'Nothing',
    answer: 'Key',
  },
  {
    path: '/accounts/{name}',
    method: 'patch',
    id: 'changeAccount',
    summary: 'Changes an account (RFC 7396)',
    request: 'AccountPatch',
    answer: 'Account',
  },
  {
    path: '/accounts/{name}/freeze',
    method: 'post',
    id: 'freezeAccount',
    summary: 'Refuses all requests of an account',
    request: 'Nothing',
    answer: 'Account',
  },
  {
    path: '/accounts/{name}/unfreeze',
    method: 'post',
    id: 'unfreezeAccount',
    summary: 'Ends a freeze',
    request: 'Nothing',
    answer: 'Account',
  },
  {
    path: '/accounts/{name}/grants',
    method: 'post',
    id: 'grantCredit',
    summary: 'Grants credit, in the credit file or a store',
    request: 'Grant',
    status: 201,
    answer: 'Granted',
    errors: ['idempotency_key_reused'],
  },
  { path: '/prices', method: 'get', id: 'showPrices', summary: "Shows a store's prices", answer: 'Prices' },
  {
    path: '/prices',
    method: 'put',
    id: 'replacePrices',
    summary: "Replaces a store's prices",
    request: 'PriceFile',
    answer: 'Prices',
  },
  {
    path: '/replicas',
    method: 'get',
    id: 'listReplicas',
    summary: 'Lists the sidecars of a store',
    answer: 'Replicas',
    errors: ['unprocessable', 'control_plane_overloaded'],
  },
  {
    path: '/replicas/{id}/write-off',
    method: 'post',
    id: 'writeOffReplica',
    summary: 'Gives back the credit that a sidecar held whose data folder is lost',
    request: 'Nothing',
    answer: 'WrittenOff',
  },
];

const ownFields = Object.fromEntries(Object.entries(FIXED_FIELDS).filter(([name]) => name !== 'hash'));
const TEXT = { type: 'string' };
const DAY_OR_NULL = { type: ['string', 'null'], pattern: '^\\d{4}-\\d\\d-\\d\\d$' };
const USD = { type: 'string', pattern: '^-?\\d+(\\.\\d{1,12})?$' };

/** Why the sidecar cannot use what is stored now. */
const PROBLEM = { problem: TEXT };

const keyFields = {
  ...ownFields,
  ...CHANGEABLE_FIELDS,
  state: { enum: ['revoked', 'expired', 'unattributed', 'frozen', 'good'] },
  accountTokens: closed([], tokenLimitFields),
};
const REQUIRED_OF_KEY = ['id', 'created', 'entitlements', 'state'];

const balance = {
  oneOf: [
    { type: 'null' },
    closed(['granted', 'available'], { granted: USD, available: USD, ageMs: { type: 'number', minimum: 0 } }),
  ],
};
const accountFields = {
  account: FIXED_FIELDS.account,
  frozen: { type: 'boolean' },
  quotas: closed([], tokenLimitFields),
  balance,
};
const REQUIRED_OF_ACCOUNT = Object.keys(accountFields);
const replicaFields = {
  id: TEXT,
  host: TEXT,
  release: TEXT,
  epoch: { type: 'integer' },
  joined: { type: 'string', format: 'date-time' },
  leaseMs: { type: 'integer', description: 'Until its lease ends; below 0: it has ended.' },
  held: { ...USD, description: 'USD that it holds: drawn, and neither charged nor returned.' },
};

/** Named ones. */
const SCHEMAS: Readonly<Record<string, object>> = {
  KeyCreation: closed(['account'], { account: FIXED_FIELDS.account, ...CHANGEABLE_FIELDS }),
  KeyPatch: { ...closed([], patched(CHANGEABLE_FIELDS, ['entitlements'])), minProperties: 1 },
  AccountPatch: { ...closed([], patched(ACCOUNT_FIELDS)), minProperties: 1 },
  Rotation: closed([], { graceMs: { type: 'integer', minimum: 0, maximum: MAX_GRACE_MS, default: 0 } }),
  Nothing: closed([], {}),
  Grant: closed(Object.keys(GRANT_FIELDS), { ...GRANT_FIELDS, usd: { ...GRANT_FIELDS.usd, ...USD } }),
  PriceFile: PRICE_SCHEMA,
  Key: closed(REQUIRED_OF_KEY, { ...keyFields, ...PROBLEM }),
  NewKey: closed(['key', ...REQUIRED_OF_KEY], { key: TEXT, ...keyFields, ...PROBLEM }),
  KeyPage: closed(['file', 'sha256', 'keys'], {
    file: TEXT,
    sha256: TEXT,
    keys: { type: 'integer', minimum: 0 },
    ...PROBLEM,
    environment: TEXT,
    models: { type: 'array', items: TEXT },
    credit: { type: 'boolean' },
    data: { type: 'array', items: closed([...REQUIRED_OF_KEY, 'lastUsed'], { ...keyFields, lastUsed: DAY_OR_NULL }) },
    accounts: { type: 'array', items: closed(REQUIRED_OF_ACCOUNT, accountFields) },
    hasMore: { type: 'boolean' },
  }),
  Account: closed(REQUIRED_OF_ACCOUNT, { ...accountFields, ...PROBLEM }),
  Granted: closed([...Object.keys(GRANT_FIELDS), ...REQUIRED_OF_ACCOUNT], {
    ...GRANT_FIELDS,
    ...accountFields,
    ...PROBLEM,
  }),
  Prices: closed(['file', 'revision'], {
    file: { $ref: '#/components/schemas/PriceFile' },
    revision: TEXT,
    ...PROBLEM,
  }),
  Replicas: closed(['data'], { data: { type: 'array', items: closed(Object.keys(replicaFields), replicaFields) } }),
  WrittenOff: closed(['released'], { released: USD }),
  Error: componentSchemas()['Error'] ?? {},
};

const PARAMETERS: readonly (readonly [name: string, description: string, schema: object])[] = [
  ['account', 'Only keys of this account.', FIXED_FIELDS.account],
  ['after', 'Only keys after the one with this id.', FIXED_FIELDS.id],
  [
    'limit',
    'How many; with 0 only which keys are in force.',
    { type: 'integer', minimum: 0, maximum: MOST_KEYS, default: DEFAULT_KEYS },
  ],
];

const IF_MATCH = {
  name: 'If-Match',
  in: 'header',
  required: true,
  description: 'The revision of GET /prices to which the change was made, in quotes.',
  schema: TEXT,
};

/** What RFC 7396 lets a patch of these fields have: null removes one, unless it must stay. */
function patched(fields: Readonly<Record<string, object>>, required: readonly string[] = []): Record<string, object> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, schema]) => [
      name,
      required.includes(name) ? patchOf(schema as Schema) : { anyOf: [{ type: 'null' }, patchOf(schema as Schema)] },
    ]),
  );
}

function patchOf(schema: Schema): object {
  if (schema['type'] !== 'object') return schema;
  const { required, properties, additionalProperties, ...rest } = schema;
  const inner = typeof additionalProperties === 'object' ? patchOf(additionalProperties as Schema) : undefined;
  return {
    ...rest,
    ...(properties !== undefined && {
      properties: patched(properties as Record<string, object>, required as string[] | undefined),
    }),
    additionalProperties: inner === undefined ? additionalProperties : { anyOf: [{ type: 'null' }, inner] },
  };
}

function reference(name: string): object {
  return { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } };
}

/** The answers that are errors, by status, each with its codes. */
function refusals({ id, request, errors = [] }: Operation): object {
  const codes: ErrorCode[] = [
    ...(['bad_request', 'invalid_api_key', 'not_found', 'user_rate_limited', 'internal'] as const),
    ...(request === undefined ? [] : (['payload_too_large', ...CHANGES] as const)),
    ...errors,
  ];
  const byStatus = new Map<number, ErrorCode[]>(request === undefined ? [] : [[415, ['bad_request']]]);
  for (const code of codes) {
    const { status }: CatalogueRow = CATALOGUE[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  if (id === 'replacePrices') byStatus.set(412, ['unprocessable']);
  return Object.fromEntries(
    [...byStatus].map(([status, of]) => [status, { description: of.join(', '), content: reference('Error') }]),
  );
}

function operation(of: Operation): object {
  const { path, id, summary, request, status = 200, answer } = of;
  const name = /\{(\w+)\}/.exec(path)?.[1];
  const parameters = [
    ...(name === undefined ? [] : [{ name, in: 'path', required: true, schema: FIXED_FIELDS.account }]),
    ...(answer === 'KeyPage'
      ? PARAMETERS.map(([each, description, schema]) => ({ name: each, in: 'query', description, schema }))
      : []),
    ...(id === 'replacePrices' ? [IF_MATCH] : []),
  ];
  return {
    operationId: id,
    summary,
    ...(parameters.length > 0 && { parameters }),
    ...(request !== undefined && { requestBody: { required: request !== 'Nothing', content: reference(request) } }),
    responses: { [status]: { description: 'The answer.', content: reference(answer) }, ...refusals(of) },
  };
}

/** The whole document. */
export function operatorsOpenApi(): object {
  const paths = new Map<string, object>();
  for (const each of OPERATIONS) paths.set(each.path, { ...paths.get(each.path), [each.method]: operation(each) });
  return {
    openapi: '3.1.0',
    info: {
      title: "ra-sidecar: the operators' listener",
      version: '1.0.0',
      description:
        "Keys, accounts, grants and a store's prices and sidecars, where `operators.secretFile` is set. A PATCH is checked as a whole once it is merged.",
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: 'http://127.0.0.1:9090' }, { url: 'http://127.0.0.1:9090/admin' }],
    security: [{ operator: [] }],
    paths: Object.fromEntries(paths),
    components: {
      securitySchemes: {
        operator: { type: 'http', scheme: 'bearer', description: 'One of the secrets of `operators.secretFile`.' },
      },
      schemas: SCHEMAS,
    },
  };
}

/** The text of docs/operators-openapi.json. */
export function operatorsOpenApiText(): string {
  return `${JSON.stringify(operatorsOpenApi(), null, 2)}\n`;
}
