import t from 'tap';
import { MAX_PARAM, pathOf, placeOf, segmentsOf } from '../../../sidecar/contracts/body-refusals.js';

t.test('segments of a JSON pointer', async (t) => {
  t.same(segmentsOf(''), []);
  t.same(segmentsOf('/'), ['']);
  t.same(segmentsOf('/messages/0/content'), ['messages', '0', 'content']);
  t.same(segmentsOf('/a~1b~0c/~01/~1~1'), ['a/b~c', '~1', '//']);
});

t.test('paths', async (t) => {
  for (const [segments, path] of [
    [[], ''],
    [['a'], 'a'],
    [['a', '0', 'b'], 'a[0].b'],
    [['0', 'a'], '[0].a'],
    [['a', '12', '3'], 'a[12][3]'],
    [['a', '1b'], 'a.1b'],
    [['a', 'b1'], 'a.b1'],
  ] as const)
    t.equal(pathOf(segments), path);
});

t.test('places', async (t) => {
  const open = new Set(['map', 'inner']);
  for (const [segments, index, subject, param] of [
    [[], undefined, 'the body', null],
    [['a', '0'], undefined, 'a[0]', 'a[0]'],
    [['map'], undefined, 'map', 'map'],
    [['map', 'k'], undefined, 'map has an entry that', 'map'],
    [['map', 'k'], 2, 'map has an entry (index 2) that', 'map'],
    [['map', 'k', 'a', '0'], 0, 'map has an entry (index 0) whose a[0]', 'map'],
    [['map', 'map', 'a'], undefined, 'map has an entry whose a', 'map'],
    [['x', 'map', 'k', 'inner', 'l'], 1, 'x.map has an entry (index 1) whose inner has an entry that', 'x.map'],
    [['map', 'k', 'inner', 'l', 'b'], undefined, 'map has an entry whose inner has an entry whose b', 'map'],
  ] as const)
    t.same(placeOf(segments, open, index), { subject, param }, segments.join('.'));
});

t.test('a param is cut at whole names', async (t) => {
  const none = new Set<string>();
  t.equal(placeOf(['a'.repeat(MAX_PARAM)], none).param, 'a'.repeat(MAX_PARAM));
  t.equal(placeOf(['a'.repeat(MAX_PARAM + 1)], none).param, null);
  t.equal(placeOf(['a'.repeat(MAX_PARAM - 2), 'b'], none).param, `${'a'.repeat(MAX_PARAM - 2)}.b`);
  t.equal(placeOf(['a'.repeat(MAX_PARAM - 1), 'b'], none).param, 'a'.repeat(MAX_PARAM - 1));
});
