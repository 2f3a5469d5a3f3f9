/** Random bodies as raw HTTP: each answer fits its schema, repeats nothing of the body, and is never a 500. */
import fc from 'fast-check';
import t from 'tap';
import { validateAnswer } from '../../sidecar/contracts/answer-schemas.js';
import type { BodyForm } from '../../sidecar/contracts/requests.js';
import { ROUTES, bodiesFor, runsOr } from '../support/fuzz.js';
import { InProcess, JSON_HEADERS } from '../support/in-process.js';
import { CANARY } from './tables/rule.js';

const RUNS = runsOr(300);

/** The longest time of one answer, ms: long enough that only a hang exceeds it, even on a busy machine. */
const HANG_MS = 30_000;

const PATHS = {
  chat: '/v1/chat/completions',
  decisions: '/v1/decisions',
  systemone: '/v1/systemone',
  embeddings: '/v1/embeddings',
  rerank: '/v1/rerank',
  compatible: '/v1/chat/completions',
  'compatible-billed': '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
  'messages-billed': '/v1/messages/count_tokens',
} as const;

/** The requests to each contract’s sidecar. */
const FORMS: Readonly<Record<string, readonly BodyForm[]>> = {
  strict: ROUTES,
  compatible: ['compatible', 'responses', 'messages', 'messages-billed'],
};

for (const [contract, forms] of Object.entries(FORMS))
  t.test(`random bodies: ${contract}`, async (t) => {
    const sidecar = await InProcess.start(t, { models: [{ id: 'hosted', kind: 'chat' }], config: { contract } });
    const connection = await sidecar.connect();
    const seen = new Map<number, number>();

    const check = async (route: BodyForm, bytes: Uint8Array): Promise<void> => {
      connection.request('POST', PATHS[route], { ...JSON_HEADERS, 'Content-Length': String(bytes.length) });
      const response = await connection.send(bytes).response();
      // No body names a hosted model, so an accepted body gets `model_not_entitled`.
      if (![400, 403].includes(response.status)) throw new Error(`a status of ${response.status}`);
      const outcome = validateAnswer(
        route.startsWith('messages') ? 'MessageError' : 'Error',
        JSON.parse(response.body),
      );
      if (!outcome.ok) throw new Error(`${outcome.path} ${outcome.message}`);
      if (response.raw.includes(CANARY)) throw new Error('the answer repeats what the caller sent');
      seen.set(response.status, (seen.get(response.status) ?? 0) + 1);
    };

    const properties = forms.flatMap((route) => Object.values(bodiesFor(route)).map((bodies) => ({ route, bodies })));
    for (const { route, bodies } of properties) {
      const property = fc.asyncProperty(bodies, (bytes) => check(route, bytes));
      await fc.assert(property, { numRuns: Math.ceil(RUNS / properties.length), timeout: HANG_MS });
    }

    t.ok(seen.get(400) && seen.get(403), `answers by status: ${JSON.stringify([...seen])}`);
    t.notOk(JSON.stringify(sidecar.lines).includes(CANARY), 'the log does not repeat what callers sent');
  });
