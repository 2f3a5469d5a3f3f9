/** The schemas of our own answers, field by field, as the requests' are. */
import t from 'tap';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import { ANSWER_TABLES } from '../../contract/tables/answer-tables.js';
import { verdictsOfClosed, verdictsOfRule } from '../../contract/tables/rule.js';
import { pathText, shown, withAt } from '../../support/bodies.js';

for (const { kind, base, rules, objects } of ANSWER_TABLES) {
  t.same(validateAnswer(kind, base), { ok: true, value: base }, `${kind}: every field at once`);
  for (const { at, value, refused } of [...rules.flatMap(verdictsOfRule), ...objects.flatMap(verdictsOfClosed)]) {
    const outcome = validateAnswer(kind, withAt(base, at, value));
    const told = outcome.ok ? undefined : { path: outcome.path, message: outcome.message };
    const expected = refused && { path: pathText(refused.at), message: refused.predicate };
    t.same(told, expected, `${kind}: ${pathText(at)} ${shown(value)}`);
  }
}

t.test('a piece of a tool call is its first or a later one', (t) => {
  const chunk = ANSWER_TABLES.find(({ kind }) => kind === 'chunk')?.base ?? null;
  const piece = (value: object): boolean =>
    validateAnswer(
      'chunk',
      withAt(chunk, ['choices', 0, 'delta', 'tool_calls', 0], JSON.parse(JSON.stringify(value)) as null),
    ).ok;
  const first = { index: 0, id: 'c', type: 'function', function: { name: 'f', arguments: '' } };
  const later = { index: 127, function: { arguments: '{' } };
  t.ok(piece(first));
  t.ok(piece(later));
  for (const wrong of [
    { ...first, index: 128 },
    { ...first, index: -1 },
    { ...first, id: '' },
    { ...first, type: 'tool' },
    { ...first, extra: 1 },
    { ...first, function: { name: 'f' } },
    { ...first, function: { name: '', arguments: '' } },
    { ...first, function: { name: 'f', arguments: 1 } },
    { ...first, function: { name: 'f', arguments: '', extra: 1 } },
    { ...later, id: 'c' },
    { ...later, type: 'function' },
    { ...later, extra: 1 },
    { ...later, function: { arguments: '', extra: 1 } },
    { ...later, function: { name: 'f', arguments: '' } },
    { ...later, function: {} },
    { ...later, function: { arguments: 1 } },
    { index: 0 },
    { function: { arguments: '' } },
    { id: 'c', type: 'function', function: { name: 'f', arguments: '' } },
    { index: 0, id: 'c', function: { name: 'f', arguments: '' } },
    { index: 0, type: 'function', function: { name: 'f', arguments: '' } },
    { index: 0, id: 'c', type: 'function' },
  ]) {
    t.notOk(piece(wrong), JSON.stringify(wrong));
  }
  t.end();
});
