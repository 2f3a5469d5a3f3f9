/**
 * The contract’s tables as raw HTTP, each refusal compared completely. Every case names a model that is not hosted, so
 * an accepted body is recognized by the refusal of the next check, nothing is generated, and thousands of cases run in
 * seconds. `make test` sends some of them: test/sidecar/contracts/cases.test.ts checks all in process.
 */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { validateAnswer } from '../../sidecar/contracts/answer-schemas.js';
import { cases } from '../support/long-form.js';
import { InProcess, JSON_HEADERS } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';
import { withSetting } from './tables/accepted.js';
import { CASES, HEAVY_CASES, LIGHT_CASES } from './tables/cases.js';
import { CANARY, type ContractCase } from './tables/rule.js';

const CONNECTIONS = 4;

/** `make test` sends each so manieth case. */
const SAMPLED = 24;

/** The longest body of both decision routes. */
const DECISION_BYTES = 1024 * 1024;

const PATHS = { chat: '/v1/chat/completions', decisions: '/v1/decisions', systemone: '/v1/systemone' } as const;

interface Expected {
  readonly status: number;
  readonly error: Readonly<Record<'message' | 'type' | 'code', string>> & { readonly param: string | null };
}

const NOT_HOSTED: Expected = {
  status: 403,
  error: {
    message:
      'This key may not call this model here. GET /v1/models lists the models it may call; ask the operator for the id of a decision model.',
    type: 'permission_error',
    code: 'model_not_entitled',
    param: 'model',
  },
};

const TOO_LARGE: Expected = {
  status: 413,
  error: {
    message: `The body is larger than the ${DECISION_BYTES} bytes that this route takes. Shorten the content or split the request.`,
    type: 'invalid_request_error',
    code: 'payload_too_large',
    param: null,
  },
};

function expected(one: ContractCase, bytes: number): Expected {
  if (one.route !== 'chat' && bytes > DECISION_BYTES) return TOO_LARGE;
  const refusal = withSetting(one);
  if (refusal === undefined) return NOT_HOSTED;
  const { message, param } = refusal;
  return { status: 400, error: { message, type: 'invalid_request_error', code: 'bad_request', param } };
}

/** Problems of an answer, each with the case’s name. */
function complaints({ name }: ContractCase, { status, error }: Expected, response: RawResponse): readonly object[] {
  const body = JSON.parse(response.body) as unknown;
  const found = { status: response.status, body };
  const wanted = { status, body: { error } };
  const wrong = [
    ...(isDeepStrictEqual(found, wanted) ? [] : [{ found, wanted }]),
    ...(validateAnswer('error', body).ok ? [] : ['is not the error object']),
    ...(response.field('content-type') === 'application/json' ? [] : ['is not said to be JSON']),
    ...(response.field('x-should-retry') === 'false' ? [] : ['does not have x-should-retry: false']),
    ...(response.field('x-request-id') === undefined ? ['has no x-request-id'] : []),
    ...(response.raw.includes(CANARY) ? ['repeats what the caller sent'] : []),
  ];
  return wrong.map((what) => ({ name, what }));
}

/** Runs cases in turn on one connection, except those with 413, which closes it. Returns the problems. */
async function runAll(sidecar: InProcess, cases: Iterator<ContractCase>): Promise<object[]> {
  const wrong: object[] = [];
  let connection = await sidecar.connect();
  for (let next = cases.next(); next.done !== true; next = cases.next()) {
    const one = next.value;
    const body = one.body();
    const target = expected(one, body.length);
    connection.request('POST', PATHS[one.route], {
      ...JSON_HEADERS,
      'Content-Length': String(body.length),
    });
    connection.send(body);
    wrong.push(...complaints(one, target, await connection.response()));
    if (target !== TOO_LARGE) continue;
    connection.close();
    connection = await sidecar.connect();
  }
  connection.close();
  return wrong;
}

t.test('every case over HTTP', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'hosted', kind: 'chat' }] });
  t.ok(CASES.length > 1000, `${CASES.length} cases`);
  const light = cases(LIGHT_CASES, (_, i) => i % SAMPLED === 0)[Symbol.iterator]();
  const wrong = await Promise.all(Array.from({ length: CONNECTIONS }, () => runAll(sidecar, light)));
  // One text of 16 MiB at the bound and one above it cover large bodies; the other cases of that size run in-process.
  const long = [...HEAVY_CASES.filter(({ route }) => route !== 'chat'), ...HEAVY_CASES.slice(0, 2)];
  wrong.push(await runAll(sidecar, long[Symbol.iterator]()));
  t.strictSame(wrong.flat(), []);
  t.notOk(
    sidecar.lines.some((line) => JSON.stringify(line).includes(CANARY)),
    'the log repeats nothing that callers sent',
  );
  t.equal((await sidecar.ask('GET', '/healthz', {})).status, 200, 'the sidecar still runs');
});
