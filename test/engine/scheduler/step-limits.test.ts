import t from 'tap';
import { jobProblem } from '../../../engine/scheduler/job.js';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { IMAGE_IDS, type ImageSegment } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { generateJob } from '../../support/generate-job.js';

const SIZE = 100;
const BAD = 'a token outside the vocabulary';

function generate(...prompt: number[]): GenerateJob {
  return generateJob(prompt, { maxTokens: 1, temperature: 0 });
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
  t.equal(jobProblem(generate(0xffffffff), SIZE), BAD, 'a number that would be negative as int32');
  t.equal(jobProblem(score(99, 99, 99), SIZE), undefined);
  for (const job of [score(100, 1, 1), score(1, 100, 1), score(1, 1, 100)]) t.equal(jobProblem(job, SIZE), BAD);
  t.end();
});

t.test('an image has its own ids, a digest, and positions of its size', async (t) => {
  const image: ImageSegment = {
    kind: 'image',
    tokens: Uint32Array.of(IMAGE_IDS, 0xffffffff),
    digest: new Uint8Array(32),
    positions: 2,
    columns: 0,
    whole: false,
  };
  const text = { kind: 'tokens', tokens: Uint32Array.of(1) } as const;
  const problem = (more: Partial<ImageSegment>, ...rest: GenerateJob['prompt']): string | undefined =>
    jobProblem({ ...generate(1), prompt: [text, { ...image, ...more }, ...rest] }, SIZE);
  t.equal(problem({}, text), undefined);
  t.equal(problem({ columns: 2, positions: 1 }, text), undefined);
  for (const bad of [
    { tokens: Uint32Array.of(5, 6) },
    { tokens: new Uint32Array(0) },
    { digest: new Uint8Array(31) },
    { positions: 1 },
    { positions: 3, columns: 1 },
    { positions: 0, columns: 1 },
    { columns: 3 },
    { positions: NaN, columns: 1 },
  ]) {
    t.equal(problem(bad, text), 'an image that is no image', JSON.stringify(bad));
  }
  t.equal(problem({}), 'an image without tokens after it');
  t.equal(problem({}, { kind: 'tokens', tokens: Uint32Array.of(SIZE) }), BAD);
});
