/**
 * What the default model’s answers mean, over HTTP. Look-ups are left out: the model card states that it has not learnt
 * them.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { checked, complete } from '../support/replies.js';
import { SEEDLING_CHAT as CHAT, SEEDLING_DECIDE as DECIDE, sharedSidecar } from '../support/shared-sidecar.js';
import { sourceRoot } from '../support/source-root.js';

const sidecar = await sharedSidecar();

interface Answer {
  readonly probabilities: Readonly<Record<string, number>>;
  readonly choice?: string;
  readonly score?: number;
}

async function decide(input: string, question: Readonly<Record<string, unknown>>): Promise<Answer> {
  const body = { model: DECIDE, input, questions: [{ id: 'q', ...question }] };
  const text = await (await sidecar.post('/decisions', body)).text();
  const { answers } = checked('decisions', text) as { answers: Record<string, Answer> };
  const answer = answers['q'];
  if (!answer) throw new Error('no answer');
  return answer;
}

const REFUND = { type: 'yes_no', question: 'Does the customer ask for a refund?' };

t.test('a request for a refund is recognized', async (t) => {
  const yes = await decide('I was charged twice. Please send the second payment back.', REFUND);
  t.ok((yes.probabilities['yes'] ?? 0) > 0.9, `P(yes) ${yes.probabilities['yes']}`);
  const no = await decide('When does the shop in Oslo open on Sunday?', REFUND);
  t.ok((no.probabilities['yes'] ?? 1) < 0.1, `P(yes) ${no.probabilities['yes']}`);
});

t.test('a message is classified, whatever the order of the topics', async (t) => {
  const topics = ['refund', 'delivery', 'password', 'job'];
  const options = topics.map((name) => ({ name }));
  for (const [input, topic] of [
    ['I was charged twice. Please send the second payment back.', 'refund'],
    ['My parcel has not arrived after 9 days.', 'delivery'],
    ['I forgot my password and cannot sign in.', 'password'],
  ] as const) {
    for (const order of [options, options.toReversed()]) {
      const { choice, probabilities } = await decide(input, {
        type: 'choice',
        question: 'What is the message about?',
        options: order,
      });
      t.equal(choice, topic, JSON.stringify(probabilities));
    }
  }
});

t.test('getting-started shows a decision with the answers that this model gives', async (t) => {
  const page = readFileSync(join(sourceRoot, 'docs', 'getting-started.md'), 'utf8');
  const [, json = ''] = /v1\/decisions \\\n[^]*?-d '(\{[^]*?\})'\n```/.exec(page) ?? [];
  const asked = JSON.parse(json) as { input: string; questions: { id: string; options?: { name: string }[] }[] };
  const answersTo = async (questions: readonly object[]): Promise<Record<string, Answer>> => {
    // The page’s model under its name here.
    const text = await (await sidecar.post('/decisions', { ...asked, model: DECIDE, questions })).text();
    return (checked('decisions', text) as { answers: Record<string, Answer> }).answers;
  };
  const answers = await answersTo(asked.questions);
  const shown = [...page.matchAll(/(0\.\d+)<!-- answer (\w+) (\w+) -->/g)];
  t.strictSame(
    shown.map(([, , id]) => id),
    Object.keys(answers),
    'each answer is on the page',
  );
  for (const [, probability, id = '', answer = ''] of shown) {
    const found = answers[id]?.probabilities[answer] ?? 0;
    t.ok(found > 0.9 && Math.abs(found - Number(probability)) < 0.01, `${id}: ${answer} with ${found}`);
  }
  const bare = asked.questions.map(({ options, ...question }) =>
    options ? { ...question, options: options.map(({ name }) => ({ name })) } : question,
  );
  const [, answer, id = ''] = /(\w+)<!-- answer (\w+) without descriptions -->/.exec(page) ?? [];
  t.equal((await answersTo(bare))[id]?.choice, answer, 'the answer without descriptions is the one on the page');
});

t.test('a level is recognized', async (t) => {
  const question = { type: 'score', question: 'How angry is the writer?', levels: ['calm', 'annoyed', 'furious'] };
  const furious = await decide('Where is my parcel? I am furious! Never again! Terrible!', question);
  const calm = await decide('Where is my parcel? Thank you for your help.', question);
  t.ok((furious.score ?? 0) > (calm.score ?? 0) + 1, `${furious.score} against ${calm.score}`);
});

t.test('it greets, introduces itself and ends its turn', async (t) => {
  for (const [said, answer] of [
    ['Hello', /^Hello!/],
    ['Hello, who are you?', /seedling/],
    ['What is a seat?', /seat is a place/],
  ] as const) {
    const { choices } = await complete(sidecar, said, { model: CHAT, temperature: 0, max_completion_tokens: 64 });
    t.match(choices[0].message.content, answer);
    t.equal(choices[0].finish_reason, 'stop');
  }
});

const WEATHER = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather in a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

t.test('it calls the fitting tool, and none if there is nothing to call', async (t) => {
  const greedy = { model: CHAT, temperature: 0, max_completion_tokens: 64, tools: [WEATHER] };
  const { choices } = await complete(sidecar, 'What is the weather in Paris?', greedy);
  t.equal(choices[0].finish_reason, 'tool_calls');
  const { tool_calls: calls } = choices[0].message as {
    tool_calls?: readonly { function: { name: string; arguments: string } }[];
  };
  t.equal(calls?.length, 1);
  t.equal(calls?.[0]?.function.name, 'get_weather');
  t.same(JSON.parse(calls?.[0]?.function.arguments ?? ''), { city: 'Paris' });
  const { choices: plain } = await complete(sidecar, 'Hello', greedy);
  t.equal(plain[0].finish_reason, 'stop');
  t.match(plain[0].message.content, /^Hello!/);
});

t.test('in JSON mode the object has the facts of the text', async (t) => {
  const { choices } = await complete(sidecar, 'Write this as JSON with name and age: Anna is 31 years old.', {
    model: CHAT,
    temperature: 0,
    max_completion_tokens: 64,
    response_format: { type: 'json_object' },
  });
  t.same(JSON.parse(choices[0].message.content), { name: 'Anna', age: 31 });
});
