import t from 'tap';
import { parseDecisions } from '../../../sidecar/contracts/parse.js';
import { type At, FULL_DECISIONS, type Json, bytesOf, withAt } from '../../support/bodies.js';

const parse = (body: Json | string) => parseDecisions('decisions', bytesOf(body));

const put = (at: At, value: Json | undefined) => parse(withAt(FULL_DECISIONS, at, value));

t.test('a whole request', (t) => {
  t.same(parse(FULL_DECISIONS), {
    kind: 'ok',
    request: {
      params: {
        route: 'decisions',
        model: 'decider-1',
        temperature: 2,
        questions: [
          { id: 'a', type: 'yes_no', answers: ['yes', 'no'] },
          { id: 'b', type: 'choice', answers: ['sales', 'billing'] },
          { id: 'c', type: 'score', answers: ['calm', 'cross', 'furious'] },
        ],
      },
      input: 'I was charged twice.',
      questions: [
        { question: 'Is it about money?', meanings: ['it is', 'it is not'] },
        { question: 'Which desk?', meanings: ['sells', undefined] },
        { question: 'How angry?', meanings: [undefined, undefined, undefined] },
      ],
    },
  });
  t.match(put(['temperature'], undefined), { request: { params: { temperature: 1 } } });
  t.end();
});

t.test('a body that is no object', (t) => {
  for (const body of ['[]', '1', 'null', '"x"']) {
    t.match(parse(body), { error: { message: 'the body must be an object', param: null } });
  }
  t.match(parse('{"model":"m","model":"m"}'), {
    error: { message: 'the body must not repeat a name within one object' },
  });
  t.match(parse('\ufeff{}'), { error: { message: 'the body must not begin with a byte order mark' } });
  t.match(parse(''), { error: { message: 'the body must be JSON' } });
  t.end();
});
