import t from 'tap';
import { parseDecisions } from '../../../sidecar/contracts/parse.js';
import { type At, FULL_DECISIONS, type Json, bytesOf, withAt } from '../../support/bodies.js';

const parse = (body: Json | string) => parseDecisions('decisions', bytesOf(body));

const put = (at: At, value: Json | undefined) => parse(withAt(FULL_DECISIONS, at, value));

t.test('a whole request', async (t) => {
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
});
