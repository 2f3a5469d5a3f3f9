import { createHash } from 'node:crypto';
import t from 'tap';
import { Draw, partOf } from '../../../bench/seedling/corpus/draw.js';
import { WORDINGS } from '../../../bench/seedling/corpus/wordings.js';
import { chatAt, decisionAt, earlyAt, exampleAt, focusAt, longDecisionAt } from '../../../bench/seedling/mix.js';

const EXAMPLES = 400;

t.test('the same seed and place give the same example, others another', (t) => {
  const some = (seed: number): string => JSON.stringify([1, 2, 3].map((at) => exampleAt(seed, at, 'train')));
  t.equal(some(1), some(1));
  t.not(some(1), some(2));
  t.end();
});

t.test('the sources give the text that the committed model was trained on', (t) => {
  const hash = createHash('sha256').update(JSON.stringify(WORDINGS));
  for (let at = 0; at < EXAMPLES; at++)
    for (const make of [exampleAt, earlyAt, focusAt]) hash.update(JSON.stringify(make(1, at, 'train')));
  t.equal(hash.digest('hex').slice(0, 16), 'c4cebfd2515c884d');
  t.end();
});

t.test('training and evaluation draw from parts of a list that share nothing', (t) => {
  const list = Array.from({ length: 23 }, (_, at) => at);
  const [train, held] = [partOf(list, 'train'), partOf(list, 'held')];
  t.same(
    [...train, ...held].sort((a, b) => a - b),
    list,
  );
  t.ok(held.length >= 4);
  const picked = (split: 'train' | 'held'): Set<number> => {
    const draw = new Draw(1, split);
    return new Set(Array.from({ length: 300 }, () => draw.pick(list)));
  };
  t.same(
    [...picked('train')].filter((one) => picked('held').has(one)),
    [],
  );
  t.end();
});

t.test('no wording kept for evaluation is in the training part', (t) => {
  const asks = WORDINGS.talks.flatMap(({ asks }) => partOf(asks, 'held'));
  const says = WORDINGS.intents
    .flatMap((intent) => partOf(intent.says, 'held'))
    .map((text) => text.replace(/\{\w+\}/g, '\0').split('\0'));
  const trained: string[] = [];
  const kept: string[] = [];
  for (let at = 0; at < EXAMPLES * 4; at++) {
    const example = exampleAt(1, at, 'train');
    if (example.kind === 'decision') {
      const said = (parts: readonly string[]): boolean => parts.every((part) => example.input.includes(part));
      // A wording that is only slots and a word or two is in every text.
      if (says.some((parts) => parts.join('').length > 25 && said(parts))) kept.push(example.input);
    } else
      trained.push(...example.conversation.messages.map(({ content }) => (typeof content === 'string' ? content : '')));
  }
  t.same(kept, []);
  t.same(
    asks.filter((ask) => trained.includes(ask)),
    [],
  );
  t.end();
});

t.test('every decision has its answer among its answers, and no two answers alike', (t) => {
  const answers = new Map<string, number>();
  const wrong: unknown[] = [];
  for (let at = 0; at < EXAMPLES; at++) {
    for (const question of decisionAt(9, at, at % 2 ? 'train' : 'held').questions) {
      const { type, answers: all, answer, meanings } = question;
      const whole = all[answer] !== undefined && meanings.length === all.length;
      if (!whole || new Set(all).size !== all.length) wrong.push(question);
      answers.set(`${type} ${answer}`, (answers.get(`${type} ${answer}`) ?? 0) + 1);
    }
  }
  t.same(wrong, []);
  const [yes = 0, no = 0] = [answers.get('yes_no 0'), answers.get('yes_no 1')];
  t.ok(yes / (yes + no) > 0.4 && yes / (yes + no) < 0.6, `${yes} yes, ${no} no`);
  t.ok(answers.has('choice 5') && answers.has('score 2'), 'choices have many options');
  t.end();
});

t.test('a reply that calls a tool calls one that is offered, with what it requires', (t) => {
  let calls = 0;
  for (let at = 0; at < EXAMPLES; at++) {
    const { reply, conversation } = chatAt(9, at, at % 2 ? 'train' : 'held');
    const [, text] = /^<tool_call>\n(.*)\n<\/tool_call>$/.exec(reply) ?? [];
    if (text === undefined) continue;
    calls += 1;
    const call = JSON.parse(text) as { name: string; arguments: object };
    const tools = conversation.tools as readonly { function: { name: string; parameters: { required: string[] } } }[];
    const tool = tools.find((one) => one.function.name === call.name);
    t.same(Object.keys(call.arguments), tool?.function.parameters.required);
  }
  t.ok(calls > 20);
  t.end();
});

t.test('filler stands around an input that is still there', (t) => {
  const short = longDecisionAt(3, 1, 'train', 0);
  const long = longDecisionAt(3, 1, 'train', 900);
  t.ok(long.input.length > 3000);
  t.same(long.questions, short.questions);
  t.end();
});
