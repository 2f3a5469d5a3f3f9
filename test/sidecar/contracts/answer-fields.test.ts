/** The schemas of the sidecar’s answers, field by field, as the requests’ are. */
import t from 'tap';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import { ANSWER_TABLES } from '../../contract/tables/answer-tables.js';
import { PIECES, chunkWith } from '../../contract/tables/chunk-tables.js';
import { isLong, verdictsOfClosed, verdictsOfRule } from '../../contract/tables/rule.js';
import { type Json, pathText, shown, withAt } from '../../support/bodies.js';

for (const { kind, base, rules, objects } of ANSWER_TABLES) {
  t.same(validateAnswer(kind, base), { ok: true, value: base }, `${kind}: every field at once`);
  for (const { at, value, refused } of [...rules.flatMap(verdictsOfRule), ...objects.flatMap(verdictsOfClosed)]) {
    // Left to long-cases.test.ts.
    if (isLong(value)) continue;
    const outcome = validateAnswer(kind, withAt(base, at, value));
    const reported = outcome.ok ? undefined : { path: outcome.path, message: outcome.message };
    const expected = refused && { path: pathText(refused.at), message: refused.predicate };
    t.same(reported, expected, `${kind}: ${pathText(at)} ${shown(value)}`);
  }
}

t.test('a piece of a tool call is its first or a later one', (t) => {
  const taken = (piece: Json): boolean => validateAnswer('chunk', chunkWith(piece)).ok;
  for (const piece of PIECES.good) t.ok(taken(piece), shown(piece));
  for (const piece of PIECES.bad.filter((one) => !isLong(one))) t.notOk(taken(piece), shown(piece));
  t.end();
});
