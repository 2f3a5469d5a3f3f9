import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../sidecar/lib/clock.js';
import type { BodyForm } from '../../../../sidecar/contracts/requests.js';
import { PromptHostClient } from '../../../../sidecar/prompts/client.js';
import { received } from '../../../support/bodies.js';
import { PROMPTS_VERSION, type PromptModel } from '../../../../sidecar/prompts/messages.js';
import type { Tokenized } from '../../../../sidecar/prompts/prompt-maker.js';
import { LinkedChild } from '../../../support/linked-child.js';
import { testModel } from '../../../support/models.js';
import { bundleTemplate, bundleVocabulary } from '../../../support/prompt-models.js';
import { promptIds, promptLength } from '../../../../engine/protocol/prompt.js';

const OWNER = { account: 'a', weight: 1 };

const NEVER = new AbortController().signal;
const HOST = fileURLToPath(new URL('../../../../sidecar/prompts/host.js', import.meta.url));
const STUB = fileURLToPath(new URL('../../../support/prompt-worker.js', import.meta.url));

function clientOf(t: Pick<Test, 'teardown'>, models: readonly PromptModel[], workers = 1) {
  const restarts: string[] = [];
  const client = new PromptHostClient({
    name: 'long',
    models,
    workers,
    silenceMs: 30_000,
    maxQueued: 10,
    inlineBytes: 1000,
    clock: systemClock,
    hooks: { restart: (why) => restarts.push(why) },
  });
  // Between two hosts only the clock’s timer is pending, which does not keep a process alive.
  const alive = setInterval(() => undefined, 60_000);
  t.teardown(() => {
    clearInterval(alive);
    client.close();
  });
  const send = async (route: BodyForm, body: object): Promise<Tokenized> => {
    const prompt = client.open(route, received(Buffer.from(JSON.stringify(body))), OWNER);
    try {
      const checked = await prompt.check(NEVER);
      return checked.kind === 'checked' ? await prompt.tokenize(NEVER) : checked;
    } finally {
      prompt.close();
    }
  };
  return { client, send, restarts };
}

async function real(
  id: string,
  kind: PromptModel['kind'],
  vocabulary: string,
  template: string,
  contextPerSeat = 4096,
): Promise<PromptModel> {
  const file = await bundleVocabulary(vocabulary);
  return { id, kind, file, contextPerSeat, template: { chatTemplate: await bundleTemplate(template) } };
}

const user = (content: string) => [{ role: 'user', content }];

const gemma = await real('gemma', 'chat', 'llama-bpe', 'google-gemma-2-2b-it');
/** One host for all tests that end none: each loads the vocabularies of its models. */
const shared = clientOf(t, [
  await real('qwen', 'chat', 'qwen2', 'Qwen-Qwen2.5-7B-Instruct'),
  await real('r1', 'chat', 'qwen2', 'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B'),
  await real('judge', 'decision', 'qwen2', 'Qwen-Qwen2.5-7B-Instruct'),
  await real('mute', 'decision', 'phi-3', 'microsoft-Phi-3.5-mini-instruct'),
  { id: 'lost', kind: 'chat', file: '/nowhere/model.gguf', contextPerSeat: 1 },
  await real('wide', 'chat', 'qwen2', 'Qwen-Qwen2.5-7B-Instruct', 100_000),
  await real('llama', 'chat', 'llama-bpe', 'meta-llama-Llama-3.1-8B-Instruct'),
  gemma,
  { ...gemma, id: 'none', template: { ...gemma.template, toolFormat: 'none' } },
  await real('harmony', 'chat', 'llama-bpe', 'openai-gpt-oss-120b'),
  await real('thinker', 'chat', 'qwen2', 'Qwen3.5-4B'),
  { id: 'own', kind: 'chat', file: await testModel(), contextPerSeat: 4096 },
  { id: 'embed', kind: 'embedding', file: await testModel(), contextPerSeat: 300 },
]);

t.test('bodies become tokens, or are refused with the reason', async (t) => {
  const { client, send, restarts } = shared;
  const ready = await client.ready();
  t.match(ready.kind === 'ready' && { ...ready, models: ready.models.slice(0, 5) }, {
    kind: 'ready',
    models: [
      { id: 'qwen', tools: true, system: true, calls: { native: true } },
      { id: 'r1', tools: true, calls: { native: true, says: /lists no tools/ } },
      { id: 'judge' },
      { id: 'mute', problem: /is not one token/ },
      { id: 'lost', problem: /does not exist/ },
    ],
  });

  const hello = await send('chat', { model: 'qwen', messages: user('Hello') });
  // <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n
  t.equal(
    hello.kind === 'chat' && promptIds(hello.prompt).slice(-9).join(),
    '151644,872,198,9707,151645,198,151644,77091,198',
  );

  const long = await send('chat', { model: 'qwen', messages: user('Hello '.repeat(1000)) });
  t.ok(long.kind === 'chat' && promptLength(long.prompt) > 1000, 'a body that was checked in the host');

  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }];
  t.match(await send('chat', { model: 'qwen', messages: user('Hello'), tools }), { kind: 'chat' });
  t.match(await send('chat', { model: 'r1', messages: user('Hello'), tools }), { kind: 'chat' });
  t.match(await send('chat', { model: 'qwen', messages: user('x'.repeat(256 * 5000)) }), {
    kind: 'refused',
    error: {
      code: 'bad_request',
      param: 'messages',
      message:
        /maximum context length is 4096 tokens\. The prompt has at least 5\d\d\d: reduce the length of the messages \(context_length_exceeded\)/,
    },
  });

  const question = (text: string) => ({ id: 'q', type: 'yes_no', question: text });
  const decided = await send('decisions', { model: 'judge', input: 'A text.', questions: [question('Short?')] });
  t.ok(decided.kind === 'decision' && decided.questions[0]?.labels.length === 2 && decided.input.length > 10);
  const over = {
    model: 'judge',
    input: 'word '.repeat(8000),
    questions: [question('a?'), { ...question('word '.repeat(200)), id: 'p' }],
  };
  t.match(await send('decisions', over), {
    kind: 'refused',
    error: { code: 'bad_request', param: 'questions[1]', message: /question 1 .* 8\d\d\d tokens; at most 8185/ },
  });

  t.same(await send('chat', { model: 'lost', messages: user('Hello') }), { kind: 'failed', reason: 'no model' });
  t.match(await send('chat', { messages: user('Hello') }), { kind: 'refused', error: { param: 'model' } });
  t.same(restarts, []);
});

t.test('inputs that are tokens already are made as their body is checked, a short one without the host', async (t) => {
  const { client } = shared;
  await client.ready();
  const open = (input: unknown) =>
    client.open('embeddings', received(Buffer.from(JSON.stringify({ model: 'embed', input, truncate: true }))), OWNER);
  const long = Array.from({ length: 600 }, (_, i) => i % 200);
  for (const [input, counts] of [
    [[[7, 8, 9], [11]], { tokens: [7, 8, 9, 11], lengths: [3, 1], truncated: [] }],
    [[[1], long], { tokens: [1, ...long.slice(0, 300)], lengths: [1, 300], truncated: [1] }],
  ] as const) {
    const body = open(input);
    const checking = body.check(NEVER);
    t.equal(client.stats().queued + client.stats().running, input[1].length > 300 ? 1 : 0);
    const checked = await checking;
    const made = checked.kind === 'checked' ? checked.made : undefined;
    const seen = made?.kind === 'embedding' ? { ...made, tokens: [...made.tokens], lengths: [...made.lengths] } : made;
    t.match(seen, counts);
    t.same(made, await body.tokenize(NEVER), 'as for a replica that wants another version');
    body.close();
  }
  const texts = open(['a']);
  t.match(await texts.check(NEVER), { kind: 'checked', made: undefined });
  texts.close();
});

for (const workers of [0, 1]) {
  t.test(`tools that are expensive to compile are compiled beside other prompts, ${workers} workers`, async (t) => {
    const { send, restarts } =
      workers === 1
        ? shared
        : clientOf(t, [await real('wide', 'chat', 'qwen2', 'Qwen-Qwen2.5-7B-Instruct', 100_000)], workers);
    const asked = (schema: object): object => {
      const parameters = { type: 'object', properties: { p: schema }, required: ['p'] };
      return {
        model: 'wide',
        messages: user('Hello'),
        tools: [{ type: 'function', function: { name: 'f', parameters } }],
        tool_choice: 'required',
      };
    };
    // Near the largest grammar: more work than QUICK_WORK, less than MAX_WORK.
    const large = Object.fromEntries(Array.from({ length: 230 }, (_, i) => [`p${i}`, { type: 'string' }]));
    const expensive = {
      allOf: [{ anyOf: Array(250).fill({ minLength: 1 }) }, ...Array<object>(600).fill({ minLength: 1 })],
    };
    const [served, small, refused] = await Promise.all([
      send('chat', asked({ properties: large })),
      send('chat', asked({ type: 'integer' })),
      send('chat', asked(expensive)),
    ]);
    t.match(small, { kind: 'chat', format: { grammar: { gbnf: /integer/ } } });
    t.match(served, { kind: 'chat', format: { grammar: { gbnf: /p229/ } } });
    t.match(refused, {
      kind: 'refused',
      error: { code: 'unprocessable', status: 422, param: 'tools', message: /combinations/ },
    });
    t.same(restarts, []);
  });
}

t.test('a conversation that a template cannot express is refused, with what cannot', async (t) => {
  const { send } = shared;
  const call = (args: string) => ({ id: 'call00001', type: 'function', function: { name: 'f', arguments: args } });
  const called = (...calls: object[]) => [...user('Hello'), { role: 'assistant', tool_calls: calls }];
  const unprocessable = (param: string, message: RegExp) => ({
    kind: 'refused',
    error: { code: 'unprocessable', status: 422, param, message },
  });
  t.match(await send('chat', { model: 'llama', messages: called(call('{}')) }), { kind: 'chat' });
  const two = await send('chat', { model: 'llama', messages: called(call('{}'), call('{}')) });
  t.match(two, { kind: 'chat' }, 'several calls, which the template refuses in one message');
  const broken = await send('chat', { model: 'llama', messages: called(call('{}'), call('{"a":')) });
  t.match(broken, unprocessable('messages[1].tool_calls[1].function.arguments', /arguments/));
  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }];
  t.match(
    await send('chat', { model: 'gemma', messages: user('Hello'), tools }),
    { kind: 'chat' },
    'the prompt lists them',
  );
  t.match(
    await send('chat', { model: 'none', messages: user('Hello'), tools }),
    unprocessable('tools', /without tools/),
  );
  const turns = [...user('Hello'), ...user('Hello')];
  t.match(
    await send('chat', { model: 'gemma', messages: turns }),
    { kind: 'chat' },
    'two messages of one role in a row',
  );
  const marked = [...turns, { role: 'assistant', content: '<|channel|>analysis<|message|>' }, ...turns];
  t.match(
    await send('chat', { model: 'harmony', messages: marked }),
    unprocessable('messages[2]', /cannot express this conversation/),
  );
  const lost = /cannot express this conversation/;
  const instructed = await send('responses', { model: 'harmony', instructions: 'Be brief.', input: marked });
  t.match(instructed, unprocessable('input[2]', lost), 'the caller’s own index');
  const written = await send('messages', { model: 'harmony', system: 'Be brief.', messages: marked });
  t.match(written, unprocessable('messages[2]', lost), 'where two messages are one turn');
});

t.test('the reply’s format is returned with the tokens', async (t) => {
  const { send } = shared;
  const ask = (model: string, effort?: string) =>
    send('chat', { model, messages: user('Hello'), ...(effort !== undefined && { reasoning_effort: effort }) });
  t.match(await ask('thinker'), { format: { thought: { open: true, starts: ['<think>'], ends: ['</think>'] } } });
  t.match(await ask('thinker', 'none'), { format: { thought: { open: false } } });
  t.match(await ask('qwen'), { kind: 'chat', format: undefined });
});

t.test("a model's own template is used", async (t) => {
  t.match(await shared.send('chat', { model: 'own', messages: user('Hello') }), { kind: 'chat' });
});

t.test('20,000 equal letters are tokenized, and a number that ends the tokenizer fails alone', async (t) => {
  const { send, restarts } = clientOf(t, [
    await real('deepseek', 'chat', 'deepseek-llm', 'Qwen-Qwen2.5-7B-Instruct', 100_000),
  ]);
  // With a thread’s usual stack the process would end here: a segmentation fault in llama.cpp.
  t.match(await send('chat', { model: 'deepseek', messages: user('a'.repeat(20_000)) }), { kind: 'chat' });
  t.same(restarts, []);
  const [killer, other] = await Promise.all([
    send('chat', { model: 'deepseek', messages: user('a'.repeat(2_000_000)) }),
    send('chat', { model: 'deepseek', messages: user('Hello') }),
  ]);
  t.same(killer, { kind: 'failed', reason: 'died' });
  t.match(other, { kind: 'chat' });
  t.same(restarts, ['died']);
});

t.test('a host ends with its parent, and at an unknown message', async (t) => {
  const begun = (version: number): LinkedChild => {
    const child = new LinkedChild(HOST);
    child.send({ kind: 'start', v: version, setup: { models: [], workers: 1, workerFile: STUB } });
    return child;
  };
  const started = async (): Promise<LinkedChild> => {
    const child = begun(PROMPTS_VERSION);
    await once(child, 'message');
    return child;
  };
  const orphan = await started();
  orphan.leave();
  t.same(await once(orphan.process, 'exit'), [null, 'SIGKILL']);
  const puzzled = await started();
  puzzled.send({ kind: 'unknown' });
  t.same(await once(puzzled.process, 'exit'), [null, 'SIGKILL']);
  t.same(await once(begun(PROMPTS_VERSION + 1).process, 'exit'), [null, 'SIGKILL'], 'of another version');
});

t.test('no native llama code is in this process', async (t) => {
  const { sharedObjects } = process.report.getReport() as unknown as { sharedObjects: string[] };
  t.same(
    sharedObjects.filter((path) => /llama|ggml/.test(path)),
    [],
  );
});
