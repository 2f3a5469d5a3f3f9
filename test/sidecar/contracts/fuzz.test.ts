/** Every random body gives a request, or a refusal that fits its schema and repeats nothing. `make fuzz` runs more. */
import fc from 'fast-check';
import t from 'tap';
import { WRAPPED } from '../../../engine/prompt/call-syntax.js';
import { constraintOf } from '../../../engine/prompt/chat-prompt.js';
import { compileConstraintInFull } from '../../../engine/prompt/reply-constraint.js';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import { parseBody, parseChat } from '../../../sidecar/contracts/parse.js';
import type { BodyForm, ChatRequest } from '../../../sidecar/contracts/requests.js';
import { unservable } from '../../../sidecar/prompts/prompt-maker.js';
import { errorBody } from '../../../sidecar/domain/errors.js';
import { CANARY } from '../../contract/tables/rule.js';
import { rounds } from '../../support/long-form.js';
import { promptOf } from '../../support/prompt-shape.js';
import { FORMS, bodiesFor, runsOr } from '../../support/fuzz.js';

const RUNS = runsOr(rounds({ short: 2000, long: 6000 }));

/** Parses; a refusal must fit the error schema and repeat nothing of the body. */
function check(route: BodyForm, bytes: Uint8Array): 'ok' | 'invalid' {
  const parsed = parseBody(route, bytes);
  if (parsed.kind === 'invalid') {
    const text = errorBody(parsed.error);
    const outcome = validateAnswer('Error', JSON.parse(text));
    if (!outcome.ok) throw new Error(`${outcome.path} ${outcome.message}`);
    if (text.includes(CANARY)) throw new Error('the error repeats what the caller sent');
    if (parsed.error.status !== 400 || parsed.error.code !== 'bad_request') throw new Error('not a bad request');
  } else if (route === 'chat') checkCompatible(bytes);
  else if ('conversation' in parsed.request) checkHeld(route, parsed.request);
  return parsed.kind;
}

/** A body that the strict contract accepts is accepted by the compatible one, with the same prompt and the same job. */
function checkCompatible(bytes: Uint8Array): void {
  const [strict, compatible] = [parseChat(bytes), parseChat(bytes, 'compatible')];
  if (strict.kind === 'invalid' || compatible.kind === 'invalid')
    throw new Error('strict accepts what compatible refuses');
  if (promptOf(compatible.request) !== promptOf(strict.request)) throw new Error('compatible: another prompt');
}

const held = { ok: 0, unservable: 0 };

/** Schemas that a contract accepts are made into a grammar, or refused without any of the caller’s text. */
function checkHeld(route: BodyForm, { params, conversation, replySchema, replySchemaAt }: ChatRequest): void {
  const { calls, jsonObject } = params;
  const wanted = { jsonObject, ...(calls && { calls }), ...(replySchema && { replySchema }) };
  const made = compileConstraintInFull(constraintOf(WRAPPED, conversation.tools ?? [], wanted));
  held[made.kind]++;
  if (made.kind === 'ok') return;
  const { error } = unservable(made, route, replySchemaAt ? { replySchemaAt } : {});
  if (error.status !== 422 || !validateAnswer('Error', JSON.parse(errorBody(error))).ok) throw new Error('not a 422');
  if (errorBody(error).includes(CANARY) || made.why.includes(CANARY))
    throw new Error('it repeats what the caller sent');
}

const properties = FORMS.flatMap((route) =>
  Object.entries(bodiesFor(route)).map(([how, bodies]) => ({ route, how, bodies })),
);

const seen = { ok: 0, invalid: 0 };
let longestMs = 0;

for (const { route, how, bodies } of properties)
  t.test(`${route}: ${how}`, async () => {
    const property = fc.property(bodies, (bytes) => {
      const start = performance.now();
      seen[check(route, bytes)]++;
      longestMs = Math.max(longestMs, performance.now() - start);
    });
    fc.assert(property, { numRuns: Math.ceil(RUNS / properties.length) });
  });

t.test('bodies of both kinds were tried', async (t) => {
  t.ok(seen.ok > 0 && seen.invalid > 0);
  t.ok(held.ok > 0, `${held.ok} bodies with constrained replies, ${held.unservable} without a grammar`);
});
t.comment(`${seen.ok + seen.invalid} bodies, ${seen.ok} of them requests; the longest took ${longestMs.toFixed(1)} ms`);
