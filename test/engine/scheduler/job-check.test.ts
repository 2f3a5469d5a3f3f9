import t from 'tap';
import { jobProblem } from '../../../engine/scheduler/job-check.js';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const SIZE = 100;
const BAD = 'a token outside the vocabulary';

function generate(...prompt: number[]): GenerateJob {
  const rest = {
    n: 1,
    maxTokens: 1,
    temperature: 0,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 1,
    stops: [],
    scope: ALL_ACCOUNTS,
    seats: 1,
  };
  return { prompt: tokenPrompt(Uint32Array.from(prompt)), ...rest };
}

function score(input: number, tail: number, label: number): ScoreJob {
  const question = { tail: Uint32Array.of(tail), labels: Uint32Array.of(1, label), temperature: 1 };
  return {
    input: Uint32Array.of(1, input),
    questions: [question],
    temperature: 1,
    scope: ALL_ACCOUNTS,
    isolate: true,
    seats: 1,
  };
}

t.test('tokens outside the vocabulary are refused wherever they are', (t) => {
  t.equal(jobProblem(generate(0, 99), SIZE), undefined);
  t.equal(jobProblem(generate(0, 100, 1), SIZE), BAD);
  t.equal(jobProblem(generate(0xffffffff), SIZE), BAD, 'what would be a negative number');
  t.equal(jobProblem(score(99, 99, 99), SIZE), undefined);
  for (const job of [score(100, 1, 1), score(1, 100, 1), score(1, 1, 100)]) t.equal(jobProblem(job, SIZE), BAD);
  t.end();
});
