/** What the sidecar sends through its prompt host before it is ready, to a host that the test answers for. */
import t from 'tap';
import { parseBody } from '../../../sidecar/contracts/parse.js';
import { warmUp } from '../../../sidecar/prompts/warm-up.js';
import type { ModelReport } from '../../../sidecar/prompts/messages.js';
import { refused, type BodyBytes, type OpenBody, type Tokenized } from '../../../sidecar/prompts/prompt-maker.js';

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

t.test('a chat with tools goes to a model that takes them, and is waited for', async (t) => {
  const prompts = new FakePrompts();
  let warm = false;
  const sent = warmUp(prompts as never, MODELS, 'chat').then(() => (warm = true));
  await new Promise(setImmediate);
  t.equal(prompts.bodies.length, 1);
  t.match(JSON.parse(Buffer.from(prompts.bodies[0] ?? []).toString()), { model: 'chat', tools: [{}] });
  t.equal(prompts.pending.length, 1, 'it passed the contract');
  t.notOk(warm);
  prompts.pending[0]?.({ kind: 'failed', reason: 'died' });
  await sent;
  t.equal(prompts.closed, 1);
});

t.test('where no chat model takes tools there are none, and without a chat model nothing is sent', async (t) => {
  const prompts = new FakePrompts();
  void warmUp(prompts, MODELS.slice(0, 2), 'chat');
  await new Promise(setImmediate);
  t.strictSame(Object.keys(JSON.parse(Buffer.from(prompts.bodies[0] ?? []).toString()) as object), [
    'model',
    'messages',
  ]);
  await warmUp(prompts, MODELS.slice(0, 1), 'chat');
  t.equal(prompts.bodies.length, 1);
});
