import t from 'tap';
import type { Sampler, Sampling } from '../../../engine/scheduler/decoder.js';
import type { GenerateJob, Output } from '../../../engine/protocol/jobs.js';
import type { ReplyFormat } from '../../../engine/protocol/reply-format.js';
import { Reply } from '../../../engine/scheduler/reply.js';
import type { ModelTokens } from '../../../engine/scheduler/job.js';
import { FakeDecoder } from '../../support/fake-decoder.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const TEXTS = [
  '',
  'Hi',
  ' .<',
  'call>',
  '[CALL]',
  'look{',
  '"a":1',
  '}',
  '</call>',
  ' bye',
  'go{}',
  'zzz',
  '<call>',
  '\n\n',
];
const END = 0;
const CONTROL = TEXTS.indexOf('[CALL]');

const model: ModelTokens = {
  isEnd: (token) => token === END,
  bytes: (token) => (token === CONTROL ? new Uint8Array(0) : Buffer.from(TEXTS[token] ?? '')),
  control: (token) => (token === CONTROL ? '[CALL]' : undefined),
};

const SYNTAX = { mark: '<call>', open: '<call>', between: '', close: '</call>', next: '</call><call>' };
const GBNF = 'calls ::= "…"';

interface Run {
  readonly outputs: readonly Output[];
  /** The calls of the sampler. */
  readonly log: readonly string[];
  readonly sampling: Sampling | undefined;
}

/** A reply of these texts, one token each, until it has ended. */
function run(format: ReplyFormat, texts: readonly string[], more: Partial<GenerateJob> = {}, holds = true): Run {
  const log: string[] = [];
  let sampling: Sampling | undefined;
  const sampler: Sampler = {
    constrain: (gbnf, tokens) => {
      log.push(`hold ${JSON.stringify(gbnf)} ${tokens.join(' ')}`);
      return holds;
    },
    release: () => log.push('release'),
    dispose: () => undefined,
  };
  const decoder = Object.assign(new FakeDecoder(() => END), {
    sampler: (given: Sampling) => {
      sampling = given;
      return sampler;
    },
  });
  const job = {
    prompt: tokenPrompt(Uint32Array.of(1)),
    n: 1,
    seats: 1,
    maxTokens: 20,
    temperature: 0,
    topP: 1,
    seed: 1,
    stops: [],
    scope: ALL_ACCOUNTS,
  };
  const penalties = { frequencyPenalty: 0, presencePenalty: 0 };
  const reply = new Reply(1, 0, { ...job, ...penalties, format, ...more }, model, decoder);
  const outputs: Output[] = [];
  for (const text of texts) if (!reply.over) reply.accept(TEXTS.indexOf(text), outputs);
  return { outputs, log, sampling };
}

const common = { id: 1, choice: 0 };
const content = (text: string, tokens: number): Output => ({
  ...common,
  kind: 'piece',
  channel: 'content',
  text,
  tokens,
});
const end = (reason: 'stop' | 'length' | 'tool_calls', completionTokens: number, matchedStop?: number): Output => ({
  ...common,
  kind: 'finished',
  reason,
  completionTokens,
  reasoningTokens: 0,
  ...(matchedStop !== undefined && { matchedStop }),
});
const part = (index: number, text: string, tokens: number, name?: string): Output => ({
  ...common,
  kind: 'call',
  index,
  arguments: text,
  tokens,
  ...(name !== undefined && { name }),
});

const LOOK = ['Hi', ' .<', 'call>', 'look{', '"a":1', '}', '</call>'];
const calls = { syntax: SYNTAX, functions: ['look', 'go'], single: false, gbnf: GBNF };

t.test('a call is constrained from the token in which its mark begins to its end', (t) => {
  const { outputs, log } = run({ calls, markers: [] }, [...LOOK, ' bye', '<call>', 'go{}', '</call>', '']);
  t.same(outputs, [
    content('Hi', 1),
    content(' .', 2),
    part(0, '', 4, 'look'),
    part(0, '{', 4),
    part(0, '"a":1', 5),
    part(0, '}', 6),
    content(' bye', 8),
    part(1, '', 10, 'go'),
    part(1, '{}', 10),
    end('tool_calls', 12, END),
  ]);
  t.same(log, [
    `hold ${JSON.stringify(`root ::= " ." calls\n${GBNF}`)} 2 3`,
    'release',
    `hold ${JSON.stringify(`root ::= calls\n${GBNF}`)} 12`,
    'release',
  ]);
  t.end();
});

t.test('a call that the grammar does not accept is text', (t) => {
  const { outputs, log } = run({ calls, markers: [] }, [...LOOK, ''], {}, false);
  t.equal(outputs.map((output) => (output.kind === 'piece' ? output.text : '')).join(''), LOOK.join(''));
  t.same(outputs.at(-1), end('stop', 8, END));
  t.equal(log.length, 1, 'constrained once, and never released');
  t.end();
});

t.test('a reply with at most one call ends with its call', (t) => {
  const { outputs } = run({ calls: { ...calls, single: true }, markers: [] }, [...LOOK, ' bye', '']);
  t.same(outputs.slice(-2), [part(0, '}', 6), end('tool_calls', 6)]);
  t.end();
});

t.test('a reply ends with the last call that an answer may have', (t) => {
  const many = Array.from({ length: 130 }, () => ['<call>', 'go{}', '</call>']).flat();
  const { outputs } = run({ calls, markers: [] }, many, { maxTokens: 1000 });
  t.same(outputs.slice(-2), [part(127, '{}', 383), end('tool_calls', 383)]);
  t.end();
});

t.test('a reply cut off within a call ends with reason length', (t) => {
  const { outputs } = run({ calls, markers: [] }, LOOK, { maxTokens: 5 });
  t.same(outputs.slice(-2), [part(0, '"a":1', 5), end('length', 5)]);
  t.end();
});

t.test('stop strings end the content and not a call', (t) => {
  const { outputs } = run({ calls, markers: [] }, [...LOOK, ' bye', ''], { stops: ['"a"', 'bye'] });
  t.same(outputs.at(-3), part(0, '}', 6));
  t.match(outputs.at(-1), { kind: 'finished', reason: 'tool_calls', matchedStop: 'bye' });
  t.end();
});

t.test('control tokens are text where the format names them', (t) => {
  const syntax = { mark: '[CALL]', open: '[CALL]', between: '', close: '' };
  const format = { calls: { ...calls, syntax }, markers: ['[CALL]'] };
  const named = run(format, ['[CALL]', 'go{}', '']);
  t.same(named.outputs[0], part(0, '', 2, 'go'));
  t.same(named.sampling?.markers, ['[CALL]'], 'and may be sampled while constrained');
  t.same(run({ ...format, markers: [] }, ['[CALL]', 'go{}', '']).outputs[0], content('go{}', 2));
  t.end();
});

t.test('a stop in text that was held back until the longest length', (t) => {
  const { outputs } = run({ calls, markers: [] }, ['Hi', '\n\n', 'zzz', ''], { stops: ['\n\n'], maxTokens: 2 });
  t.match(outputs.at(-1), { kind: 'finished', reason: 'stop', matchedStop: '\n\n', completionTokens: 2 });
  t.equal(outputs.map((each) => (each.kind === 'piece' ? each.text : '')).join(''), 'Hi');
  t.end();
});

t.test('a reply that is constrained as a whole needs no constraint for its calls', (t) => {
  const held = { syntax: SYNTAX, functions: calls.functions, single: false };
  const format = { calls: held, grammar: { gbnf: 'root ::= "x"' }, markers: [] };
  const { log, outputs } = run(format, [...LOOK, '']);
  t.same(log, ['hold "root ::= \\"x\\"" ']);
  t.match(outputs.at(-1), { reason: 'tool_calls' });
  t.end();
});

const thought = { open: true, starts: ['look{'], ends: ['zzz'], implicitEnds: [], headers: [] };
const closing = [' bye', 'zzz'].map((text) => TEXTS.indexOf(text));
const said = (outputs: readonly Output[], channel: 'reasoning' | 'content'): string =>
  outputs.map((each) => (each.kind === 'piece' && each.channel === channel ? each.text : '')).join('');

t.test('a thought at its bound is closed, whatever is sampled meanwhile', (t) => {
  const thoughtLimit = { tokens: 2, closing };
  const { outputs, log } = run({ thought, thoughtLimit, markers: [] }, ['Hi', '}', 'Hi', '', 'Hi', 'go{}', '']);
  t.equal(said(outputs, 'reasoning'), 'Hi} bye');
  t.equal(said(outputs, 'content'), 'Higo{}', 'the end token that was sampled within the closing ended nothing');
  t.match(outputs.at(-1), { kind: 'finished', reason: 'stop', completionTokens: 7, reasoningTokens: 4 });
  t.strictSame(log, ['release']);
  t.end();
});

t.test(
  'a thought that ends before its bound, or a reply without one, is not touched; a later one has what is left',
  (t) => {
    const thoughtLimit = { tokens: 3, closing };
    const early = run({ thought, thoughtLimit, markers: [] }, ['Hi', 'zzz', 'Hi', '}', '}', '}', '']);
    t.equal(said(early.outputs, 'reasoning'), 'Hi');
    t.equal(said(early.outputs, 'content'), 'Hi}}}');
    const again = run({ thought, thoughtLimit, markers: [] }, ['Hi', '}', 'zzz', 'look{', '}', '}', 'Hi', '']);
    t.equal(said(again.outputs, 'reasoning'), 'Hi}\nbye', 'the mark that begins it counts');
    t.equal(said(again.outputs, 'content'), 'Hi');
    t.end();
  },
);

t.test('the grammar of what follows a closed thought takes the place of the reply’s own', (t) => {
  const grammar = { gbnf: 'root ::= "Hi"', after: 'zzz' };
  const thoughtLimit = { tokens: 1, closing, grammar: { gbnf: 'root ::= "go"', stacks: 3 } };
  const { log } = run({ thought, thoughtLimit, grammar, markers: [] }, ['Hi', '}', '}', 'go{}', '']);
  t.strictSame(log.slice(1), ['release', `hold ${JSON.stringify('root ::= "go"')} `]);
  t.end();
});

t.test('a run of steps ends at the thought’s bound', (t) => {
  const decoder = new FakeDecoder(() => END);
  const format = { thought, thoughtLimit: { tokens: 3, closing }, markers: [] };
  const job = { prompt: tokenPrompt(Uint32Array.of(1)), n: 1, seats: 1, maxTokens: 20, seed: 1, stops: [], format };
  const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, scope: ALL_ACCOUNTS };
  const reply = new Reply(1, 0, { ...job, ...sampling }, model, decoder);
  const ahead = [];
  for (const text of ['Hi', 'Hi', 'Hi', 'Hi', 'Hi', 'Hi']) {
    ahead.push(reply.ahead.tokens);
    reply.accept(TEXTS.indexOf(text), []);
  }
  t.strictSame(ahead, [3, 2, 1, 1, 1, 1]);
  t.strictSame(reply.ahead, { tokens: 14, moves: false }, 'and not after the last thought that may be');
  t.end();
});
