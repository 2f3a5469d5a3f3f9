import t from 'tap';
import { replyRules } from '../../../engine/grammar/schema.js';
import { MAX_WORK, QUICK_WORK, WorkBudget } from '../../../engine/grammar/work.js';

t.test(
  'a listed value is looked at once for each schema, though alternatives that recurse would do so again and again',
  async (t) => {
    let deep: object = {};
    for (let i = 0; i < 55; i++) deep = { a: deep };
    const node = { type: 'object', properties: { a: { $ref: '#/$defs/n' } }, minProperties: 1 };
    const schema = {
      $defs: { n: { anyOf: [node, { ...node, title: 'x' }] } },
      type: 'object',
      properties: { r: { $ref: '#/$defs/n', enum: [deep] } },
    };
    const work = new WorkBudget();
    t.equal(replyRules(schema, work).kind, 'ok');
    t.ok(work.spent < QUICK_WORK, `${work.spent} steps`);
  },
);

t.test('the texts of listed values are charged', async (t) => {
  const inner = Array.from({ length: 60 }, (_, i) => ({ type: 'array', enum: [[i]] }));
  const schema = {
    $defs: { i: { anyOf: inner } },
    type: 'array',
    enum: [[['x'.repeat(100_000)]]],
    anyOf: inner.map((_, i) => ({ items: { $ref: '#/$defs/i' }, title: `t${i}` })),
  };
  const work = new WorkBudget();
  t.equal(replyRules(schema, work).kind, 'unservable');
  t.ok(work.spent > MAX_WORK / 2, `${work.spent} steps`);
});
