/** What the sidecar sends through its prompt hosts before it is ready, to hosts that the test answers for. */
import t from 'tap';
import { QUICK_WORK, WorkBudget } from '../../../engine/grammar/work.js';
import { constraintOf } from '../../../engine/prompt/chat-prompt.js';
import { compileConstraint } from '../../../engine/prompt/reply-constraint.js';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import compile from '../../../sidecar/prompts/compiler.js';
import { WARM_UP, warmUp } from '../../../sidecar/prompts/warm-up.js';
import type { ModelReport } from '../../../sidecar/prompts/messages.js';
import { refused, type BodyBytes, type OpenBody, type Tokenized } from '../../../sidecar/prompts/prompt-maker.js';

const INLINE_BYTES = 16 * 1024;
const CALLS = { marks: 'native' } as unknown as NonNullable<ModelReport['calls']>;
const MODELS: readonly ModelReport[] = [
  { id: 'decide', tools: true, system: true },
  { id: 'plain', tools: false, system: true, calls: CALLS },
  { id: 'chat', tools: true, system: true, calls: CALLS },
];

class FakePrompts {
  readonly bodies: Uint8Array[] = [];
  readonly pending: ((result: Tokenized) => void)[] = [];
  closed = 0;

  open(form: 'chat', { bytes = new Uint8Array() }: BodyBytes): OpenBody {
    this.bodies.push(bytes);
    return {
      check: () => {
        const parsed = parseBody(form, bytes);
        return Promise.resolve(
          parsed.kind === 'invalid' ? refused(parsed.error) : { kind: 'checked', params: parsed.request.params },
        );
      },
      tokenize: () => new Promise((settle) => this.pending.push(settle)),
      close: () => (this.closed += 1),
    };
  }
}

t.test('a short and a long chat go to a model with tools, and both are waited for', async (t) => {
  const prompts = new FakePrompts();
  let warm = false;
  const all = warmUp(prompts as never, MODELS, 'chat', INLINE_BYTES).then(() => (warm = true));
  await new Promise(setImmediate);
  const [short, long] = prompts.bodies;
  t.equal(prompts.bodies.length, 2);
  t.ok(short && short.length <= INLINE_BYTES);
  t.ok(long && long.length > INLINE_BYTES);
  for (const bytes of prompts.bodies) t.match(JSON.parse(Buffer.from(bytes).toString()), { model: 'chat' });
  t.equal(prompts.pending.length, 2, 'both passed the contract');
  prompts.pending[0]?.({ kind: 'failed', reason: 'died' });
  await new Promise(setImmediate);
  t.notOk(warm, 'one host has not answered');
  prompts.pending[1]?.({ kind: 'failed', reason: 'died' });
  await all;
  t.equal(prompts.closed, 2);
});

t.test('nothing is sent where no chat model takes tools', async (t) => {
  const prompts = new FakePrompts();
  await warmUp(prompts, MODELS.slice(0, 2), 'chat', INLINE_BYTES);
  t.same(prompts.bodies, []);
});

t.test('the compiler does all the work that it may, and refuses', (t) => {
  t.match(compile(WARM_UP), { kind: 'refused', error: { code: 'unprocessable' } });
  const parsed = parseBody('chat', WARM_UP.bytes);
  if (parsed.kind === 'invalid' || !('conversation' in parsed.request)) throw new Error('no chat');
  const { conversation, params } = parsed.request;
  const work = new WorkBudget();
  work.limit(QUICK_WORK);
  compileConstraint(
    constraintOf(WARM_UP.syntax, conversation.tools ?? [], params.calls ? { calls: params.calls } : {}),
    work,
  );
  t.ok(work.stopped, 'it is not refused before it gets to the compiler');
  t.end();
});
