import t from 'tap';
import { checked, refusalOf } from '../support/replies.js';
import { NARROW_DECIDE, sharedSidecar } from '../support/shared-sidecar.js';
import { CHAT, DECIDE } from '../support/sidecar.js';

/** The most tokens of one question’s prompt (docs/contract.md#limits). */
const PROMPT_TOKENS = 8185;

const sidecar = await sharedSidecar();

interface Answer {
  readonly type: string;
  readonly probabilities: Readonly<Record<string, number>>;
  readonly label_mass: number;
  readonly choice?: string;
  readonly score?: number;
}

interface Decision {
  readonly answers: Readonly<Record<string, Answer>>;
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

const INPUT = 'I was charged twice. Please send the second payment back.';
const REFUND = { id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' };
const TEAM = {
  id: 'team',
  type: 'choice',
  question: 'Who should handle this?',
  options: [{ name: 'billing', description: 'Charges and refunds' }, { name: 'support' }, { name: 'other' }],
};
const URGENCY = { id: 'urgency', type: 'score', question: 'How urgent is it?', levels: ['can wait', 'today', 'now'] };
const ALL = [REFUND, TEAM, URGENCY];

function post(body: Readonly<Record<string, unknown>>): Promise<Response> {
  return sidecar.post('/decisions', { model: DECIDE, ...body });
}

async function decide(body: Readonly<Record<string, unknown>>): Promise<Decision> {
  const response = await post(body);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status} ${text}`);
  return checked('Decisions', text) as Decision;
}

function sum(values: Iterable<number>): number {
  return [...values].reduce((total, value) => total + value, 0);
}

function near(a: number, b: number): boolean {
  return Math.abs(a - b) < 1e-12;
}

t.test('each type of question is answered with its probabilities', async (t) => {
  const { answers, usage } = await decide({ input: INPUT, questions: ALL });
  t.same(Object.keys(answers), ['refund', 'team', 'urgency']);
  for (const [id, keys] of [
    ['refund', ['yes', 'no']],
    ['team', ['billing', 'support', 'other']],
    ['urgency', ['0', '1', '2']],
  ] as const) {
    const { probabilities, label_mass: mass } = answers[id]!;
    t.same(Object.keys(probabilities), keys);
    t.ok(near(sum(Object.values(probabilities)), 1), `${id} sums to 1`);
    t.ok(mass > 0 && mass < 1);
  }
  const { team, urgency } = answers;
  t.equal(team?.probabilities[team.choice!], Math.max(...Object.values(team!.probabilities)));
  t.ok(near(urgency!.score!, urgency!.probabilities['1']! + 2 * urgency!.probabilities['2']!));
  t.equal(usage.total_tokens, usage.prompt_tokens);
});

t.test('another input or wording gives another answer', async (t) => {
  const yes = async (input: string, question: string): Promise<number> =>
    (await decide({ input, questions: [{ ...REFUND, question }] })).answers['refund']!.probabilities['yes']!;
  const first = await yes(INPUT, REFUND.question);
  t.not(await yes('Thank you, all is well.', REFUND.question), first);
  t.not(await yes(INPUT, 'Is the customer content?'), first);
});

t.test('temperature changes the probabilities as documented, and never label_mass', async (t) => {
  const at = (temperature: number): Promise<Decision> => decide({ input: INPUT, questions: ALL, temperature });
  const [plain, two, hot, cold] = [await at(1), await at(2), await at(100), await at(0.01)];
  for (const id of ['refund', 'team', 'urgency']) {
    const answer = plain.answers[id]!;
    const p = Object.values(answer.probabilities);
    for (const other of [two, hot, cold]) t.equal(other.answers[id]?.label_mass, answer.label_mass);
    // Divided logarithms are roots of the probabilities, normalized to 1.
    const roots = p.map(Math.sqrt);
    const expected = roots.map((root) => root / sum(roots));
    t.ok(Object.values(two.answers[id]!.probabilities).every((value, i) => near(value, expected[i]!)));
    const spread = Object.values(hot.answers[id]!.probabilities);
    t.ok(Math.max(...spread) - Math.min(...spread) < 0.1, 'temperature 100 flattens');
    t.ok(Math.max(...Object.values(cold.answers[id]!.probabilities)) > 0.99, 'one near 0 decides');
  }
});

t.test('ids and option names keep their order and spelling, whatever they are', async (t) => {
  const odd = ['10', '__proto__', '2', 'constructor', '-1', '1'];
  const questions = odd.map((id) => ({ ...TEAM, id, options: odd.map((name) => ({ name })) }));
  const text = await (await post({ input: INPUT, questions })).text();
  checked('Decisions', text);
  const key = (name: string): string => `${JSON.stringify(name)}:`;
  const probabilities = `\\{${odd.map((name) => `${key(name)}[0-9.e-]+`).join(',')}\\}`;
  const answers = odd.map((id) => `${key(id)}\\{"type":"choice","probabilities":${probabilities},[^{}]+\\}`).join(',');
  t.match(text, new RegExp(`"answers":\\{${answers}\\}`));

  const state = { __proto__: null, list: [1] };
  const criteria = `{${odd.map((name) => `${key(name)}null`).join(',')}}`;
  const asked = odd.map((id) => `${key(id)}{"type":"choice","instructions":"Which?","criteria":${criteria}}`).join(',');
  const body = `{"model":"${DECIDE}","state":${JSON.stringify(state)},"questions":{${asked}}}`;
  const other = await (await sidecar.post('/systemone', body)).text();
  checked('SystemOne', other);
  const answered = odd.map((id) => `${key(id)}\\{"type":"choice",[^{}]+,"probabilities":${probabilities}\\}`).join(',');
  t.match(other, new RegExp(`"answers":\\{${answered}\\}`));
});

t.test('both routes answer the same questions with the same numbers', async (t) => {
  const { answers, usage } = await decide({ input: INPUT, questions: ALL });
  const response = await sidecar.post('/systemone', {
    model: DECIDE,
    state: INPUT,
    questions: {
      refund: { type: 'noul', instructions: REFUND.question },
      team: {
        type: 'choice',
        instructions: TEAM.question,
        criteria: { billing: 'Charges and refunds', support: null, other: null },
      },
      urgency: { type: 'score', instructions: URGENCY.question, criteria: URGENCY.levels },
    },
  });
  t.equal(response.status, 200);
  t.match(checked('SystemOne', await response.text()), {
    model: DECIDE,
    answers: {
      refund: { noul: answers['refund']?.probabilities['yes'] },
      team: { choice: answers['team']?.choice, probabilities: answers['team']?.probabilities },
      urgency: { score: answers['urgency']?.score, legend: { 0: 'can wait', 1: 'today', 2: 'now' } },
    },
    usage: { input_tokens: usage.prompt_tokens, output_tokens: 0 },
  });
});

t.test('usage counts the input once for each question', async (t) => {
  const count = async (input: string, questions: readonly unknown[]): Promise<number> =>
    (await decide({ input, questions })).usage.prompt_tokens;
  const alone = [await count(INPUT, [REFUND]), await count(INPUT, [TEAM]), await count(INPUT, [URGENCY])];
  const together = await count(INPUT, ALL);
  t.equal(together, sum(alone));
  t.equal(await count(`${INPUT}${' the'.repeat(10)}`, ALL), together + 3 * 10, 'ten tokens more for each of three');
});

t.test('a prompt may have 8,185 tokens and no more; the refusal names question and numbers', async (t) => {
  const short = (await decide({ input: 'the', questions: [REFUND] })).usage.prompt_tokens;
  const fill = (tokens: number): string => `the${' the'.repeat(tokens - short)}`;
  const { usage } = await decide({ input: fill(PROMPT_TOKENS), questions: [REFUND] });
  t.equal(usage.prompt_tokens, PROMPT_TOKENS);

  const over = { status: 400, code: 'bad_request', param: 'questions[0]' };
  t.match(await refusalOf(await post({ input: fill(PROMPT_TOKENS + 1), questions: [REFUND] })), {
    ...over,
    message: /question 0 .*\b8186\b.*\b8185\b/,
  });
  // The input and its template are the same for both; this one’s question is too long.
  const wordy = { ...REFUND, id: 'wordy', question: fill(PROMPT_TOKENS + 100) };
  t.match(await refusalOf(await post({ input: 'the', questions: [REFUND, wordy] })), {
    ...over,
    param: 'questions[1]',
    message: /question 1 .*\b8[0-9]{3}\b.*\b8185\b/,
  });
});

t.test('each kind of model has its own routes', async (t) => {
  const refused = { status: 400, code: 'unsupported_endpoint', param: 'model' };
  const messages = [{ role: 'user', content: 'Hello' }];
  const wrong = [
    sidecar.post('/decisions', { model: CHAT, input: INPUT, questions: [REFUND] }),
    sidecar.post('/systemone', { model: CHAT, state: INPUT, questions: { a: { type: 'noul', instructions: 'a' } } }),
    sidecar.post('/chat/completions', { model: DECIDE, messages }),
    sidecar.post('/chat/completions', { model: DECIDE, messages, stream: true }),
  ];
  for (const response of await Promise.all(wrong)) t.match(await refusalOf(response), refused);
});

t.test('a prompt that a seat cannot hold is the caller’s error, whatever its bound', async (t) => {
  const input = 'word '.repeat(400);
  const response = await sidecar.post('/decisions', { model: NARROW_DECIDE, input, questions: [REFUND] });
  t.equal(response.status, 400);
  const { error } = (await response.json()) as { error: { message: string; param: string } };
  t.equal(error.param, 'questions[0]');
  t.match(error.message, /has \d+ tokens, more than the 256 that this model holds/);
  t.equal((await sidecar.post('/decisions', { model: NARROW_DECIDE, input: 'x', questions: [REFUND] })).status, 200);
});
