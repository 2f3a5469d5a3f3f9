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
  const { answers } = checked('Decisions', text) as { answers: Record<string, Answer> };
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
    return (checked('Decisions', text) as { answers: Record<string, Answer> }).answers;
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

/** Tools as newcomers write them: what zod's toJSONSchema and OpenAI's examples give. */
const NEWCOMERS: readonly (readonly [
  title: string,
  ask: string,
  name: string,
  args: object,
  tool: { readonly description?: string; readonly strict?: boolean; readonly parameters: object },
  more?: readonly object[],
])[] = (() => {
  const text = { type: 'string' };
  const closed = (properties: object): object => ({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
  });
  const city = closed({ city: text });
  const paris = 'What is the weather in Paris?';
  const description = 'Get the weather in a city';
  const whole = { type: 'integer', minimum: -9007199254740991, maximum: 9007199254740991 };
  const time = {
    type: 'function',
    function: { name: 'get_time', description: 'Get the current time in a city', parameters: city },
  };
  const add = { description: 'Add two numbers', parameters: closed({ a: { type: 'number' }, b: { type: 'number' } }) };
  const location = { type: 'string', description: 'The city and state, e.g. San Francisco, CA' };
  return [
    ['closed', paris, 'get_weather', { city: 'Paris' }, { description, parameters: { ...city, $schema: undefined } }],
    ['of zod', paris, 'get_weather', { city: 'Paris' }, { description, parameters: city }],
    ['strict', paris, 'get_weather', { city: 'Paris' }, { description, strict: true, parameters: city }],
    ['without a description', paris, 'get_weather', { city: 'Paris' }, { parameters: city }],
    [
      'with a described parameter and an optional choice, as OpenAI’s example',
      paris,
      'get_current_weather',
      { location: 'Paris' },
      {
        description: 'Get the current weather in a given location',
        parameters: {
          type: 'object',
          properties: { location, unit: { type: 'string', enum: ['celsius', 'fahrenheit'] } },
          required: ['location'],
        },
      },
    ],
    [
      'an object in an object',
      paris,
      'get_weather',
      { location: { city: 'Paris' } },
      { description, parameters: closed({ location: { ...city, $schema: undefined } }) },
    ],
    ['beside another', paris, 'get_weather', { city: 'Paris' }, { description, parameters: city }, [time]],
    [
      'beside four others',
      paris,
      'get_weather',
      { city: 'Paris' },
      { description, parameters: city },
      [
        time,
        { type: 'function', function: { name: 'add', ...add } },
        {
          type: 'function',
          function: {
            name: 'search',
            description: 'Search the web',
            parameters: closed({ query: { ...text, description: 'What to search for', minLength: 1 } }),
          },
        },
        {
          type: 'function',
          function: { name: 'set_timer', description: 'Start a timer', parameters: closed({ minutes: whole }) },
        },
      ],
    ],
    ['numbers', 'What is 2 plus 3?', 'add', { a: 2, b: 3 }, add],
    [
      'whole numbers with bounds',
      'What is 21 plus 34?',
      'add',
      { a: 21, b: 34 },
      { description: 'Add two numbers', parameters: closed({ a: whole, b: whole }) },
    ],
    [
      'a choice',
      'Turn on the light in the kitchen.',
      'set_light',
      { room: 'kitchen', state: 'on' },
      {
        description: 'Turn the light of a room on or off',
        strict: true,
        parameters: closed({ room: text, state: { type: 'string', enum: ['on', 'off'] } }),
      },
    ],
    [
      'a bound',
      'Set a timer for 10 minutes.',
      'set_timer',
      { minutes: 10 },
      {
        description: 'Start a timer',
        strict: true,
        parameters: closed({ minutes: { type: 'integer', minimum: 1, maximum: 9007199254740991 } }),
      },
    ],
  ];
})();

t.test('it calls the tools that newcomers write', async (t) => {
  for (const [title, ask, name, args, tool, more = []] of NEWCOMERS) {
    const { choices } = await complete(sidecar, ask, {
      model: CHAT,
      temperature: 0,
      max_completion_tokens: 64,
      tools: [...more, { type: 'function', function: { name, ...tool } }],
    });
    const { tool_calls: calls = [], content } = choices[0].message as {
      content: string | null;
      tool_calls?: readonly { function: { name: string; arguments: string } }[];
    };
    t.strictSame(
      calls.map(({ function: called }) => [called.name, JSON.parse(called.arguments) as unknown]),
      [[name, args]],
      `${title}: ${content}`,
    );
  }
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
