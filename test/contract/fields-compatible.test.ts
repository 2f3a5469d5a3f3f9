/**
 * The contract’s tables as raw HTTP under `contract: compatible`; some of the cases in `make test`, since
 * test/sidecar/contracts/cases.test.ts checks all in process. Bodies of the strict contract are accepted. A chat
 * body that it refuses is accepted, or refused with its place and without any of the caller’s text. The other routes
 * answer as under `strict`.
 */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { validateAnswer } from '../../sidecar/contracts/answer-schemas.js';
import { parseChat } from '../../sidecar/contracts/parse.js';
import { cases as selected, LONG } from '../support/long-form.js';
import { errorOf } from '../support/error-answer.js';
import { InProcess, JSON_HEADERS } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';
import { LIGHT_CASES } from './tables/cases.js';
import { COMPATIBLE_CASES, type CompatibleCase } from './tables/compatible-tables.js';
import { MESSAGES_CASES } from './tables/messages-tables.js';
import { RESPONSES_CASES } from './tables/responses-tables.js';
import { CANARY, type Refusal } from './tables/rule.js';

const CONNECTIONS = 4;

/** `make test` sends each so manieth case. */
const SAMPLED = 24;

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
  readonly body: Uint8Array;
  /** Absent: accepted. */
  readonly refusal?: Refusal;
}

function sampled<T>(cases: readonly T[]): readonly T[] {
  return selected(cases, (_, i) => i % SAMPLED === 0);
}

/** The expected outcome of a case of the strict contract’s tables. */
function strictCases(): Case[] {
  return sampled(LIGHT_CASES).map(({ route, name, body, refusal }) => {
    const bytes = body();
    const one = { name: `compatible ${name}`, path: PATHS[route], body: bytes };
    if (refusal === undefined) return one;
    if (route !== 'chat') return { ...one, refusal };
    const parsed = parseChat(bytes, 'compatible');
    return parsed.kind === 'ok' ? one : { ...one, refusal: parsed.error };
  });
}

function ownCases(path: string, cases: readonly CompatibleCase[]): Case[] {
  return sampled(cases).map(({ name, body, refusal }) => ({
    name,
    path,
    body: Buffer.from(JSON.stringify(body)),
    ...(refusal && { refusal }),
  }));
}

/** By the place; of all others: `bad_request`. */
const CODES: Readonly<Record<string, string>> = { thread: 'thread_unsupported_request' };

/** Problems of an answer. No case names a hosted model, so an accepted body gets `model_not_entitled`. */
function complaints({ name, path, refusal }: Case, response: RawResponse): readonly object[] {
  const body: unknown = JSON.parse(response.body);
  const { code, message, param } = errorOf(response);
  const found = { status: response.status, code, ...(refusal && { message, param }) };
  const wanted =
    refusal === undefined
      ? { status: 403, code: 'model_not_entitled' }
      : {
          status: 400,
          code: CODES[refusal.param ?? ''] ?? 'bad_request',
          message: refusal.message,
          param: refusal.param,
        };
  const wrong = [
    ...(isDeepStrictEqual(found, wanted) ? [] : [{ found: { ...found, message }, wanted }]),
    ...(validateAnswer(path.startsWith('/v1/messages') ? 'messageError' : 'error', body).ok
      ? []
      : ['is not the error object']),
    ...(response.raw.includes(CANARY) ? ['repeats what the caller sent'] : []),
  ];
  return wrong.map((what) => ({ name, what }));
}

async function runAll(sidecar: InProcess, cases: Iterator<Case>): Promise<object[]> {
  const wrong: object[] = [];
  const connection = await sidecar.connect();
  for (let next = cases.next(); next.done !== true; next = cases.next()) {
    const { path, body } = next.value;
    connection.request('POST', path, { ...JSON_HEADERS, 'Content-Length': String(body.length) });
    wrong.push(...complaints(next.value, await connection.send(body).response()));
  }
  connection.close();
  return wrong;
}

t.test('every case over HTTP', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'hosted', kind: 'chat' }],
    config: { contract: 'compatible' },
  });
  const all = [
    ...strictCases(),
    ...ownCases(PATHS.chat, COMPATIBLE_CASES),
    ...ownCases(PATHS.responses, RESPONSES_CASES),
    ...ownCases(PATHS.messages, MESSAGES_CASES),
    ...ownCases(PATHS.counts, MESSAGES_CASES),
  ];
  t.ok(all.length > 1100 / (LONG ? 1 : SAMPLED), `${all.length} cases`);
  const cases = all[Symbol.iterator]();
  const wrong = await Promise.all(Array.from({ length: CONNECTIONS }, () => runAll(sidecar, cases)));
  t.strictSame(wrong.flat(), []);
  t.notOk(JSON.stringify(sidecar.lines).includes(CANARY), 'the log repeats nothing that callers sent');
});
