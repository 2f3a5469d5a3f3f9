import t from 'tap';
import { parseDecisions } from '../../../sidecar/contracts/parse.js';
import { FULL_SYSTEMONE, type Json, bytesOf } from '../../support/bodies.js';

const parse = (body: Json | string) => parseDecisions('systemone', bytesOf(body));

t.test('a whole request', async (t) => {
  t.same(parse(FULL_SYSTEMONE), {
    kind: 'ok',
    request: {
      params: {
        route: 'systemone',
        model: 'decider-1',
        temperature: 1,
        questions: [
          { id: 'a', type: 'yes_no', answers: ['yes', 'no'] },
          { id: 'b', type: 'choice', answers: ['sales', 'billing'] },
          {
            id: 'c',
            type: 'score',
            answers: ['calm', '{"level":"cross"}', '2'],
            legend: ['"calm"', '{"level":"cross"}', 'null'],
          },
        ],
      },
      input: '{"note":"I was charged twice.","tags":[{"a":1}]}',
      questions: [
        { question: 'Is it about money?', meanings: ['it is', undefined] },
        { question: '{"ask":["Which desk?"]}', meanings: ['sells', undefined] },
        { question: '["How angry?"]', meanings: [undefined, undefined, undefined] },
      ],
    },
  });
});

t.test('order, unusual names and number texts are kept', async (t) => {
  const parsed = parse(`{
    "questions": {
      "z": { "criteria": { "b": "x", "10": { "y": 1.0, "2": [ ] }, "__proto__": null, "2": "two" }, "type": "choice",
             "instructions": { "z": 1e2, "1": 12345678901234567890 } },
      "7": { "type": "noul", "instructions": "?" },
      "__proto__": { "type": "score", "instructions": "?", "criteria": [ "lo", 1.50 ] }
    },
    "state": [ 1.0, { "b": 1, "1": 2 } ],
    "model": "m",
    "extra": { "anything": true }
  }`);
  t.same(parsed, {
    kind: 'ok',
    request: {
      params: {
        route: 'systemone',
        model: 'm',
        temperature: 1,
        questions: [
          { id: 'z', type: 'choice', answers: ['b', '10', '__proto__', '2'] },
          { id: '7', type: 'yes_no', answers: ['yes', 'no'] },
          { id: '__proto__', type: 'score', answers: ['lo', '1.50'], legend: ['"lo"', '1.50'] },
        ],
      },
      input: '[1.0,{"b":1,"1":2}]',
      questions: [
        { question: '{"z":1e2,"1":12345678901234567890}', meanings: ['x', '{"y":1.0,"2":[]}', undefined, 'two'] },
        { question: '?', meanings: [undefined, undefined] },
        { question: '?', meanings: [undefined, undefined] },
      ],
    },
  });
});

t.test('the index is the place in the text, not in a JavaScript object', async (t) => {
  const parsed = parse(
    '{"model":"m","state":"s","questions":{"z":{"type":"noul","instructions":"x"},"1":{"type":"noul"}}}',
  );
  t.match(parsed, { error: { message: 'questions has an entry (index 1) whose instructions is required' } });
});
