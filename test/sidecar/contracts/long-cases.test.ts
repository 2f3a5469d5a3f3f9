/** The tables' bodies of 16 MiB: at the bound of every long text, and one character past it. */
import t from 'tap';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import { HEAVY_CASES } from '../../contract/tables/cases.js';

t.ok(HEAVY_CASES.length > 20, `${HEAVY_CASES.length} cases`);

for (const { route, name, body, refusal } of HEAVY_CASES) {
  const parsed = parseBody(route, body());
  const told = parsed.kind === 'ok' ? undefined : { message: parsed.error.message, param: parsed.error.param };
  t.same(told, refusal, name);
}
