/**
 * The contracts’ tables as raw HTTP, each refusal compared completely. Every case names a model that is not hosted, so
 * an accepted body is recognized by the refusal of the next check, nothing is generated, and thousands of cases run in
 * seconds. `make test` sends some of them: test/sidecar/contracts/cases.test.ts checks all in process.
 */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { validateAnswer } from '../../sidecar/contracts/answer-schemas.js';
import { parseChat } from '../../sidecar/contracts/parse.js';
import { cases as selected } from '../support/long-form.js';
import { errorOf } from '../support/error-answer.js';
import { InProcess, JSON_HEADERS } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';
import { withSetting } from './tables/accepted.js';
import { CASES, HEAVY_CASES, LIGHT_CASES } from './tables/cases.js';
import { COMPATIBLE_CASES, type CompatibleCase } from './tables/compatible-tables.js';
import { MESSAGES_CASES } from './tables/messages-tables.js';
import { RESPONSES_CASES } from './tables/responses-tables.js';
import { CANARY, type ContractCase, type Refusal } from './tables/rule.js';

const CONNECTIONS = 4;

/** `make test` sends each so manieth case. */
const SAMPLED = 24;

/** The longest body of both decision routes. */
const DECISION_BYTES = 1024 * 1024;

const PATHS = {
  chat: '/v1/chat/completions',
  decisions: '/v1/decisions',
  systemone: '/v1/systemone',
  responses: '/v1/responses',
  messages: '/v1/messages',
  counts: '/v1/messages/count_tokens',
} as const;

interface Case {
  readonly name: string;
  readonly path: string;
  /** Created on demand: some have 16 MiB. */
  readonly body: () => Uint8Array;
  /** Absent: accepted. */
  readonly refusal?: Refusal | undefined;
}

/** The beginning of the message about a model that is not hosted. */
const NOT_SERVED = 'The model is not served here, or this key may not call it. ';
const NOT_HOSTED = {
  status: 403,
  message: `${NOT_SERVED}GET /v1/models lists those that it may call.`,
  type: 'permission_error',
  code: 'model_not_entitled',
  param: 'model',
};
const TOO_LARGE = {
  status: 413,
  message: `The body is larger than the ${DECISION_BYTES} bytes that this route takes. Shorten the content or split the request.`,
  type: 'invalid_request_error',
  code: 'payload_too_large',
  param: null,
};

function expected({ path, refusal }: Case, bytes: number): typeof TOO_LARGE | (typeof NOT_HOSTED & Refusal) {
  const decides = /decisions|systemone/.test(path);
  if (decides && bytes > DECISION_BYTES) return TOO_LARGE;
  const message = `${NOT_SERVED}The operator knows the ids of decision models.`;
  if (refusal === undefined) return decides ? { ...NOT_HOSTED, message } : NOT_HOSTED;
  const code = refusal.param === 'thread' ? 'thread_unsupported_request' : 'bad_request';
  return { status: 400, type: 'invalid_request_error', code, ...refusal };
}

/** Problems of an answer, each with the case’s name. */
function complaints({ name, path }: Case, wanted: ReturnType<typeof expected>, response: RawResponse): object[] {
  const ofMessages = path.startsWith(PATHS.messages);
  const error = errorOf(response);
  // The Messages API has types of its own (messages.test.ts).
  const found = { status: response.status, ...error, ...(ofMessages && { type: wanted.type }) };
  const fits = validateAnswer(ofMessages ? 'MessageError' : 'Error', JSON.parse(response.body)).ok;
  const wrong = [
    ...(isDeepStrictEqual(found, wanted) ? [] : [{ found, wanted }]),
    ...(fits ? [] : ['is not the error object']),
    ...(response.field('content-type') === 'application/json' ? [] : ['is not said to be JSON']),
    ...(response.field('x-should-retry') === 'false' ? [] : ['does not have x-should-retry: false']),
    ...(response.field('x-request-id') === undefined ? ['has no x-request-id'] : []),
    ...(response.raw.includes(CANARY) ? ['repeats what the caller sent'] : []),
  ];
  return wrong.map((what) => ({ name, what }));
}

/** Runs cases in turn on one connection, except those with 413, which closes it. Returns the problems. */
async function runAll(sidecar: InProcess, cases: Iterator<Case>): Promise<object[]> {
  const wrong: object[] = [];
  let connection = await sidecar.connect();
  for (let next = cases.next(); next.done !== true; next = cases.next()) {
    const one = next.value;
    const body = one.body();
    const wanted = expected(one, body.length);
    connection.request('POST', one.path, { ...JSON_HEADERS, 'Content-Length': String(body.length) });
    connection.send(body);
    wrong.push(...complaints(one, wanted, await connection.response()));
    if (wanted !== TOO_LARGE) continue;
    connection.close();
    connection = await sidecar.connect();
  }
  connection.close();
  return wrong;
}

function sampled<T>(cases: readonly T[]): readonly T[] {
  return selected(cases, (_, i) => i % SAMPLED === 0);
}

const strict = (one: ContractCase): Case => ({ ...one, path: PATHS[one.route], refusal: withSetting(one) });

/** Under the other contract a chat body that the strict one refuses is accepted, or refused with its own place and words. */
function compatible(one: ContractCase): Case {
  if (one.route !== 'chat' || one.refusal === undefined) return { ...one, path: PATHS[one.route] };
  const parsed = parseChat(one.body(), 'compatible');
  const refusal = parsed.kind === 'ok' ? undefined : { message: parsed.error.message, param: parsed.error.param };
  return { ...one, path: PATHS.chat, refusal };
}

function own(path: string, cases: readonly CompatibleCase[]): Case[] {
  return sampled(cases).map(({ body, ...one }) => ({ ...one, path, body: () => Buffer.from(JSON.stringify(body)) }));
}

t.ok(CASES.length > 1000, `${CASES.length} cases`);
for (const [contract, light, long] of [
  [
    'strict',
    sampled(LIGHT_CASES).map(strict),
    // One text of 16 MiB at the bound and one above it cover large bodies; the other cases of that size run in-process.
    [...HEAVY_CASES.filter(({ route }) => route !== 'chat'), ...HEAVY_CASES.slice(0, 2)].map(strict),
  ],
  [
    'compatible',
    [
      ...sampled(LIGHT_CASES).map(compatible),
      ...own(PATHS.chat, COMPATIBLE_CASES),
      ...own(PATHS.responses, RESPONSES_CASES),
      ...own(PATHS.messages, MESSAGES_CASES),
      ...own(PATHS.counts, MESSAGES_CASES),
    ],
    [],
  ],
] as const)
  t.test(`${contract}: every case over HTTP`, async (t) => {
    const sidecar = await InProcess.start(t, { models: [{ id: 'hosted', kind: 'chat' }], config: { contract } });
    const cases = light[Symbol.iterator]();
    const wrong = await Promise.all(Array.from({ length: CONNECTIONS }, () => runAll(sidecar, cases)));
    wrong.push(await runAll(sidecar, long[Symbol.iterator]()));
    t.strictSame(wrong.flat(), []);
    t.notOk(JSON.stringify(sidecar.lines).includes(CANARY), 'the log repeats nothing that callers sent');
    t.equal((await sidecar.ask('GET', '/healthz', {})).status, 200, 'the sidecar still runs');
  });
