/** The contract's tables, in-process. test/contract/fields.test.ts runs the same over HTTP. */
import t from 'tap';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import { LIGHT_CASES } from '../../contract/tables/cases.js';
import { CANARY } from '../../contract/tables/rule.js';
import { verdictOf } from '../../support/bodies.js';

t.ok(LIGHT_CASES.length > 1000, `${LIGHT_CASES.length} cases`);
t.equal(new Set(LIGHT_CASES.map(({ name }) => name)).size, LIGHT_CASES.length, 'no case is there twice');

for (const { route, name, body, refusal } of LIGHT_CASES) {
  const parsed = parseBody(route, body());
  t.same(verdictOf(parsed), refusal === undefined ? 'ok' : { code: 'bad_request', status: 400, ...refusal }, name);
  t.equal(parsed.kind, refusal === undefined ? 'ok' : 'invalid');
  if (parsed.kind === 'invalid' && JSON.stringify(parsed.error).includes(CANARY)) {
    t.fail(`${name} repeats what it refuses`);
  }
}
