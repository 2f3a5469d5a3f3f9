/** The tables’ bodies of 1 MB and of 16 MiB: at the bound of every long text, and one character past it. */
import t from 'tap';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import { withSetting } from '../../contract/tables/accepted.js';
import { HEAVY_CASES } from '../../contract/tables/cases.js';
import { cases } from '../../support/long-form.js';
import { verdictOf } from '../../support/bodies.js';

t.ok(HEAVY_CASES.length > 20, `${HEAVY_CASES.length} cases`);

/** `make test` has each so manieth: the rules are the same for all texts. */
const SAMPLED = 6;

for (const one of cases(HEAVY_CASES, (_, i) => i % SAMPLED === 0)) {
  const { route, name, body } = one;
  const refusal = withSetting(one);
  const verdict = verdictOf(parseBody(route, body()));
  t.same(verdict, refusal === undefined ? 'ok' : { code: 'bad_request', status: 400, ...refusal }, name);
}
