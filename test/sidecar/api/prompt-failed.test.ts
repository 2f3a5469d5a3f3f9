import t from 'tap';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { CHAT } from '../../../sidecar/api/chat.js';
import { RESPONSES } from '../../../sidecar/api/responses.js';
import { ChatHarness, type HostAnswers } from '../../support/chat-harness.js';

const AT_ONCE = { authorize: 0, check: 0, tokenize: 0 };
const FAULT = { name: 'TypeError', stack: ['at render (template.js:1:1)'] };

const CASES: readonly [string, Partial<HostAnswers>, object][] = [
  [
    'its check threw',
    { check: { kind: 'failed', reason: 'thrown', fault: FAULT } },
    { reason: 'thrown', childFault: FAULT },
  ],
  [
    'its tokenizing threw',
    { tokenize: { kind: 'failed', reason: 'thrown', fault: FAULT } },
    { reason: 'thrown', childFault: FAULT },
  ],
  ['it ended the host', { tokenize: { kind: 'failed', reason: 'died' } }, { reason: 'died' }],
  [
    'it became a prompt of another route',
    { tokenize: { kind: 'decision', input: new Uint32Array(), questions: [] } },
    { reason: 'made for another route' },
  ],
];

t.test(
  'a prompt that is too long once it is made again, for a replica with another tokenizer, names the route’s own field',
  async (t) => {
    const tokenizeAgain = { kind: 'chat', prompt: tokenPrompt(new Uint32Array(2000)) } as const;
    for (const [route, param] of [
      [CHAT, 'messages'],
      [RESPONSES, 'input'],
    ] as const) {
      const harness = new ChatHarness();
      harness.engine.script.generate = (job) => job.failed('stale');
      const { status, body } = await harness.ask(AT_ONCE, { tokenizeAgain }, route);
      t.match({ status, error: JSON.parse(String(body)) as unknown }, { status: 400, error: { error: { param } } });
    }
  },
);

for (const [what, answers, fields] of CASES)
  t.test(
    `a body of which the prompt host made nothing, ${what}: the log has why, under the request's id`,
    async (t) => {
      const harness = new ChatHarness();
      t.equal((await harness.ask(AT_ONCE, answers)).status, 500);
      const [ended] = harness.log.lines.filter(({ event }) => event === 'request');
      t.match(ended, { requestId: String, code: 'internal' });
      t.strictSame(
        harness.log.lines.filter(({ event }) => event === 'prompt failed'),
        [{ event: 'prompt failed', ...fields, requestId: ended?.requestId }],
      );
    },
  );
