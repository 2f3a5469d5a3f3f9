/** The contract’s tables, in-process. test/contract/fields.test.ts sends some of them. */
import t from 'tap';
import { parseBody, parseChat } from '../../../sidecar/contracts/parse.js';
import { withSetting } from '../../contract/tables/accepted.js';
import { LIGHT_CASES } from '../../contract/tables/cases.js';
import { COMPATIBLE_CASES } from '../../contract/tables/compatible-tables.js';
import { MESSAGES_CASES } from '../../contract/tables/messages-tables.js';
import { RESPONSES_CASES } from '../../contract/tables/responses-tables.js';
import { CANARY } from '../../contract/tables/rule.js';
import { verdictOf } from '../../support/bodies.js';
import { promptOf } from '../../support/prompt-shape.js';

/** Bodies that were checked under both chat contracts. */
let compared = 0;

/** A body that the strict contract accepts is accepted by the compatible one, with the same prompt and the same job. */
function compare(name: string, bytes: Uint8Array): void {
  const strict = parseChat(bytes);
  if (strict.kind === 'invalid') return;
  const compatible = parseChat(bytes, 'compatible');
  if (compatible.kind === 'invalid') t.fail(`${name}: compatible: ${compatible.error.message}`);
  else if (promptOf(compatible.request) !== promptOf(strict.request)) t.fail(`${name}: compatible: another prompt`);
  compared++;
}

t.ok(LIGHT_CASES.length > 1000, `${LIGHT_CASES.length} cases`);
t.equal(new Set(LIGHT_CASES.map(({ name }) => name)).size, LIGHT_CASES.length, 'no case occurs twice');

for (const one of LIGHT_CASES) {
  const { route, name, body } = one;
  const refusal = withSetting(one);
  const parsed = parseBody(route, body());
  t.same(verdictOf(parsed), refusal === undefined ? 'ok' : { code: 'bad_request', status: 400, ...refusal }, name);
  if (route === 'chat') compare(name, body());
  t.equal(parsed.kind, refusal === undefined ? 'ok' : 'invalid');
  if (parsed.kind === 'invalid' && JSON.stringify(parsed.error).includes(CANARY))
    t.fail(`${name} repeats what it refuses`);
}

t.ok(compared > 300, `${compared} bodies, in both contracts`);

for (const [form, cases] of [
  ['compatible', COMPATIBLE_CASES],
  ['responses', RESPONSES_CASES],
  ['messages', MESSAGES_CASES],
] as const)
  for (const { name, body, refusal } of cases) {
    const parsed = parseBody(form, Buffer.from(JSON.stringify(body)));
    const wanted = refusal === undefined ? 'ok' : { code: 'bad_request', status: 400, ...refusal };
    t.same(verdictOf(parsed), wanted, `${form}: ${name}`);
    if (parsed.kind === 'invalid' && JSON.stringify(parsed.error).includes(CANARY))
      t.fail(`${form}: ${name} repeats what it refuses`);
  }
