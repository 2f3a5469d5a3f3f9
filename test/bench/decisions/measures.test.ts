import t from 'tap';
import {
  accuracy,
  at,
  brier,
  calibrationError,
  fittedTemperature,
  withinOne,
  type Outcome,
} from '../../../bench/decisions/measures.js';
import { asked, readCases, reversed } from '../../../bench/decisions/questions.js';

const outcome = (answer: number, ...probabilities: number[]): Outcome => ({ probabilities, answer });
const near = (a: number, b: number): boolean => Math.abs(a - b) < 1e-9;

t.test('accuracy, and answers one level off', (t) => {
  const some = [outcome(0, 0.7, 0.2, 0.1), outcome(0, 0.1, 0.8, 0.1), outcome(0, 0, 0.1, 0.9), outcome(2, 0, 0, 1)];
  t.equal(accuracy(some), 0.5);
  t.equal(withinOne(some), 0.75);
  t.end();
});

t.test('Brier over all answers', (t) => {
  t.equal(brier([outcome(1, 0, 1)]), 0);
  t.equal(brier([outcome(0, 0, 1)]), 2);
  t.ok(near(brier([outcome(0, 0.5, 0.5)]), 0.5));
  t.end();
});

t.test('calibration: confidence beside the share of right answers', (t) => {
  const certain = Array.from({ length: 10 }, (_, i) => outcome(i < 8 ? 0 : 1, 0.8, 0.2));
  t.ok(near(calibrationError(certain), 0));
  t.ok(near(calibrationError(certain.map(({ probabilities }) => outcome(1, ...probabilities))), 0.8));
  t.equal(calibrationError([outcome(0, 1, 0)]), 0, 'a probability of 1 falls into the last bin');
  t.end();
});

t.test('the fitted temperature corrects overconfidence', (t) => {
  const tooSure = Array.from({ length: 10 }, (_, i) => outcome(i < 7 ? 0 : 1, 0.99, 0.01));
  const temperature = fittedTemperature(tooSure);
  t.ok(temperature > 2);
  t.ok(calibrationError(tooSure.map((one) => at(temperature, one))) < calibrationError(tooSure));
  t.end();
});

t.test('a file of questions, and each question with its answers in reverse order', (t) => {
  const [first, ...more] = readCases(
    '{"input":"x","questions":[{"type":"yes_no","question":"a?","expected":"no"},' +
      '{"type":"choice","question":"b?","options":[{"name":"p","description":"d"},{"name":"q"}],"expected":"p"},' +
      '{"type":"score","question":"c?","levels":["l","m","n"],"expected":2}]}\n\n',
  );
  t.same(more, []);
  const all = first?.questions.map(asked) ?? [];
  t.same(
    all.map(({ answer }) => answer),
    [1, 0, 2],
  );
  const [, choice] = all;
  t.same(choice && reversed(choice), {
    question: { type: 'choice', question: 'b?', answers: ['q', 'p'], meanings: [undefined, 'd'] },
    answer: 1,
  });
  t.throws(
    () => readCases('{"input":"x","questions":[{"type":"yes_no","question":"a?","expected":"maybe"}]}'),
    /line 1/,
  );
  t.throws(() => readCases('{"questions":[]}'), /line 1/);
  t.end();
});
