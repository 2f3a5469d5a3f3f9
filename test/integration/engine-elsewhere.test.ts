/** A whole sidecar before a stub of vLLM: its engine process, its seats, and what callers get. No native engine runs. */
import t from 'tap';
import { loadTokenFile } from '../../engine/llama/model-tokens.js';
import { chatPrompt } from '../../engine/prompt/chat-prompt.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { promptIds } from '../../engine/protocol/prompt.js';
import { embeddedTestModel } from '../support/models.js';
import { ServerStub } from '../support/server-stub.js';
import { Sidecar } from '../support/sidecar.js';

const MODEL = 'elsewhere';
const file = await embeddedTestModel();
const { vocabulary } = await loadTokenFile(file);
const made = makePromptParts(vocabulary);
if (made.kind === 'bad') throw new Error(made.problem);
const { parts } = made;

const stub = await ServerStub.start(t, 'vllm');
stub.tokenize = (messages) => {
  const prompt = chatPrompt(parts, { messages }, { addGenerationPrompt: true }, Infinity);
  return prompt.kind === 'prompt' ? [...promptIds(prompt.prompt)] : [];
};

const sidecar = await Sidecar.start(t, {
  config: {
    models: [
      {
        id: MODEL,
        kind: 'chat',
        file,
        seats: 2,
        contextPerSeat: 512,
        engine: { kind: 'vllm', url: stub.url, cancelWaitMs: 60_000 },
      },
    ],
    engine: { backoffMinMs: 10, backoffMaxMs: 20 },
  },
});

const HELLO = { model: MODEL, messages: [{ role: 'user', content: 'Hello' }], max_completion_tokens: 8 };
const TOOLS = {
  tools: [
    {
      type: 'function',
      function: { name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] } },
    },
  ],
};

async function answer(body: object): Promise<{ readonly status: number; readonly body: unknown }> {
  const response = await sidecar.post('/chat/completions', body);
  return { status: response.status, body: await response.json() };
}

t.test('a reply, with its usage and what the server had cached', async (t) => {
  const { status, body } = await answer(HELLO);
  t.equal(status, 200);
  t.match(body, { choices: [{ finish_reason: 'stop' }], usage: { completion_tokens: 4 } });
  const line = await sidecar.logged('request');
  t.match(line, { cachedTokens: 1, completionTokens: 4 });
  t.match(stub.bodies.at(-1)?.['cache_salt'], /^[0-9a-f]{64}$/);
});

t.test('a server’s fault is 502 before a token, and one error frame after it', async (t) => {
  stub.misbehaviour = { status: 500 };
  const { status, body } = await answer(HELLO);
  t.ok(status >= 500, `${status}`);
  t.notMatch(JSON.stringify(body), /PROMPT/);
  stub.misbehaviour = { endAfter: 2 };
  const response = await sidecar.post('/chat/completions', { ...HELLO, stream: true });
  const text = await response.text();
  t.equal(text.split('"error"').length, 2);
  t.notMatch(text, /\[DONE\]/);
  stub.misbehaviour = {};
});

t.test('tools that the model may choose are refused, and a call that must come is held', async (t) => {
  t.match(await answer({ ...HELLO, ...TOOLS }), { status: 422, body: { error: { param: 'tool_choice' } } });
  await answer({ ...HELLO, ...TOOLS, tool_choice: 'required' });
  t.match(stub.bodies.at(-1), { structured_outputs: { grammar: /^root ::= / } });
});

t.test('a server that refuses is given fewer, and who was refused goes back and is served', async (t) => {
  stub.refused = new Set([stub.bodies.length]);
  t.equal((await answer(HELLO)).status, 200);
  t.equal(await sidecar.metric('ra_sidecar_seats', { model: MODEL }), 1);
});

t.test('the seat of a caller who left stays taken until the server’s count has fallen', async (t) => {
  stub.misbehaviour = { hangsAfter: 2, goesOnMs: Infinity };
  const leaving = new AbortController();
  const left = sidecar.post('/chat/completions', HELLO, { signal: leaving.signal });
  await sidecar.reaches('ra_sidecar_engine_state', () => stub.running === 1, { model: MODEL, state: 'ready' });
  leaving.abort();
  await t.rejects(left);
  await sidecar.reaches('ra_sidecar_cancels_total', 1, { model: MODEL });
  t.equal(await sidecar.metric('ra_sidecar_seats_busy', { model: MODEL }), 1);
  stub.misbehaviour = {};
  stub.running = 0;
  await sidecar.reaches('ra_sidecar_seats_busy', 0, { model: MODEL });
  t.equal((await answer(HELLO)).status, 200);
});

t.test('a server that becomes another model is not used, and the reason is shown', async (t) => {
  stub.tokenize = () => [1, 2, 3];
  stub.version = '2';
  await sidecar.logged('engine lost', 1, ({ reason }) => String(reason).includes('the prompt of one message has'));
  const { body } = await sidecar.readyz(sidecar.operatorsPort);
  t.match(JSON.stringify(body), /the server elsewhere: the prompt of one message has \d+ tokens here, 3 there/);
});
