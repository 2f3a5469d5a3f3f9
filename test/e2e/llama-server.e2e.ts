/** A llama-server behind the queue, beside the built-in engine on the same file, in one sidecar. Needs `make peers`. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { LlamaServer } from '../../bench/support/peers.js';
import { metricOf } from '../../engine/remote/load-watch.js';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { Sidecar } from '../support/sidecar.js';

t.setTimeout(300_000);

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

const SEATS = 4;
const CONTEXT = 2048;
/** A decision may have 8,192 tokens. */
const DECISION_CONTEXT = 8192;

const file = EMBEDDED_MODEL;
const server = await LlamaServer.start(file, {
  threads: 1,
  slots: SEATS,
  contextPerSlot: DECISION_CONTEXT,
  more: ['--metrics', '--jinja', '-fa', 'off'],
});
t.teardown(() => server.close());
/** The file that the sidecar needs of the model that the server computes. */
const dir = await mkdtemp(join(tmpdir(), 'ra-vocabulary-'));
t.teardown(() => rm(dir, { recursive: true, force: true }));
const vocabulary = join(dir, 'vocabulary.gguf');
await promisify(execFile)(process.execPath, [CLI, 'models', 'vocabulary', file, vocabulary]);
const engine = { kind: 'llama-server', url: `http://127.0.0.1:${server.port}` };
const chat = {
  kind: 'chat',
  file,
  prefixCache: { scope: 'all' },
  seats: SEATS,
  contextPerSeat: CONTEXT,
  threads: 1,
  flashAttention: false,
};
const decide = {
  kind: 'decision',
  file,
  seats: SEATS,
  contextPerSeat: DECISION_CONTEXT,
  threads: 1,
  flashAttention: false,
};
const sidecar = await Sidecar.start(t, {
  config: {
    contract: 'compatible',
    // The default would refuse callers that disconnect so soon.
    development: { validateAnswers: true, learnedQueue: false },
    limits: { chat: { inFlight: 0, perMinute: 0 }, decisions: { inFlight: 0, perMinute: 0 } },
    decisions: { isolate: false },
    models: [
      { id: 'own', ...chat },
      { id: 'elsewhere', ...chat, file: vocabulary, engine },
      { id: 'own-decisions', ...decide },
      { id: 'decisions-elsewhere', ...decide, file: vocabulary, engine },
    ],
  },
});

interface Completion {
  readonly choices: readonly {
    readonly message: { readonly content: string | null; readonly tool_calls?: readonly object[] };
    readonly finish_reason: string;
    readonly matched_stop?: unknown;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

async function complete(model: string, body: object): Promise<Completion> {
  const response = await sidecar.post('/chat/completions', { model, temperature: 0, ...body });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${model}: ${response.status} ${text}`);
  return JSON.parse(text) as Completion;
}

/** What must be equal, whichever engine computes. */
function outcome({ choices, usage }: Completion): object {
  return {
    usage: { prompt: usage.prompt_tokens, completion: usage.completion_tokens },
    choices: choices.map(({ message, finish_reason, matched_stop }) => ({
      content: message.content,
      calls: (message.tool_calls ?? []).map((call) => ({ ...call, id: '' })),
      finish_reason,
      matched_stop,
    })),
  };
}

const user = (content: string) => ({ messages: [{ role: 'user', content }] });

const WEATHER = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather in a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    },
  },
};

t.test('greedy replies, stops, limits, JSON and calls equal those of the built-in engine', async (t) => {
  const cases: Record<string, object> = {
    short: { ...user('Name a color.'), max_completion_tokens: 60 },
    cut: { ...user('Tell me a story about the sea.'), max_completion_tokens: 12 },
    characters: { ...user('Repeat: 東京 🙂 naïve'), max_completion_tokens: 60 },
    stop: { ...user('Count from one to ten.'), stop: [',', 'e'], max_completion_tokens: 60 },
    'stop of characters': {
      ...user('Count from one to ten.'),
      stop: ['\n\n', '\u{1f642}n'],
      max_completion_tokens: 60,
    },
    several: { ...user('Say hello.'), n: 3, max_completion_tokens: 20 },
    json: { ...user('A person as JSON.'), response_format: { type: 'json_object' }, max_completion_tokens: 80 },
    required: {
      ...user('What is the weather in Paris?'),
      tools: [WEATHER],
      tool_choice: 'required',
      max_completion_tokens: 80,
    },
    auto: { ...user('What is the weather in Paris?'), tools: [WEATHER], max_completion_tokens: 80 },
  };
  for (const [name, body] of Object.entries(cases)) {
    const [ours, theirs] = [await complete('own', body), await complete('elsewhere', body)];
    t.strictSame(outcome(theirs), outcome(ours), name);
  }
});

t.test('a stream has the text of the whole reply', async (t) => {
  const body = { ...user('Tell me a story about the sea.'), max_completion_tokens: 40 };
  const whole = await complete('elsewhere', body);
  const response = await sidecar.post('/chat/completions', {
    model: 'elsewhere',
    temperature: 0,
    stream: true,
    ...body,
  });
  const frames = (await response.text()).split('\n\n').filter((frame) => frame.startsWith('data: {'));
  const text = frames.map((frame) => {
    const { choices } = JSON.parse(frame.slice('data: '.length)) as { choices: { delta?: { content?: string } }[] };
    return choices[0]?.delta?.content ?? '';
  });
  t.equal(text.join(''), whole.choices[0]?.message.content);
});

/** Enough letters that some are not among the tokens whose probabilities a request reports. */
const OPTIONS = Array.from({ length: 26 }, (_, i) => ({ name: `option ${i}` }));

t.test('decisions have the label mass and the probabilities of the built-in engine', async (t) => {
  const questions = [
    { id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' },
    { id: 'team', type: 'choice', question: 'Who should handle this?', options: OPTIONS },
    { id: 'urgency', type: 'score', question: 'How urgent is it?', levels: ['can wait', 'today', 'now'] },
  ];
  const ask = async (model: string): Promise<readonly number[]> => {
    const input = 'I was charged twice. Please send the second payment back.';
    const response = await sidecar.post('/decisions', { model, input, questions });
    t.equal(response.status, 200);
    return numbersOf(await response.json());
  };
  const before = await requestsOf(server);
  const [ours, theirs] = [await ask('own-decisions'), await ask('decisions-elsewhere')];
  t.ok(ours.length >= 2 + 26 + 3 + 3, `${ours.length} numbers`);
  const off = theirs.map((value, i) => Math.abs(value - (ours[i] ?? NaN)));
  t.ok(Math.max(...off) < 1e-4, `at most ${Math.max(...off)} off`);
  t.ok((await requestsOf(server)) > before + questions.length, 'some labels needed requests of their own');
});

function numbersOf(value: unknown): number[] {
  if (typeof value === 'number') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(numbersOf) : [];
}

/** Decoding steps so far. */
async function requestsOf({ port }: LlamaServer): Promise<number> {
  return await metric(port, 'n_decode_total');
}

async function metric(port: number, name: string): Promise<number> {
  const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  return metricOf(page, `llamacpp:${name}`) ?? NaN;
}

t.test('1,000 callers disconnect at random times: no seat is lost, and no request waits in the server', async (t) => {
  const long = 'The sea was calm. '.repeat(60);
  const peak = watchPeak('requests_deferred');
  let left = 0;
  const caller = async (): Promise<void> => {
    while (left < 1000) {
      const at = (left += 1);
      const leaving = new AbortController();
      const timer = setTimeout(() => leaving.abort(), (at * 7919) % 150);
      // A server that evaluates a prompt checks its connections once a second, so fewer of these are sent.
      const text = at % 10 === 0 ? `${at}: ${long}Tell me more.` : `${at}: Tell me more.`;
      const body = { ...user(text), max_completion_tokens: 400, stream: true };
      await sidecar
        .post('/chat/completions', { model: 'elsewhere', ...body }, { signal: leaving.signal })
        .then((response) => response.text())
        .catch(() => undefined);
      clearTimeout(timer);
    }
  };
  await Promise.all(Array.from({ length: SEATS + 1 }, caller));
  await sidecar.reaches('ra_sidecar_seats_busy', 0, { model: 'elsewhere' });
  t.equal(await peak(), 0, 'requests that waited in the server');
  t.equal(await sidecar.metric('ra_sidecar_engine_unconfirmed_cancels_total', { model: 'elsewhere' }), 0);
  for (const [phase, least] of [
    ['prefilling', 20],
    ['decoding', 50],
  ] as const) {
    const cancels = await sidecar.metric('ra_sidecar_cancels_total', { model: 'elsewhere', phase });
    t.ok(cancels > least, `${cancels} while ${phase}`);
  }
  t.equal(await metric(server.port, 'requests_processing'), 0);
  t.strictSame(
    sidecar.lines.filter(({ event }) => event === 'engine lost'),
    [],
  );
  t.equal((await complete('elsewhere', { ...user('Say hello.'), max_completion_tokens: 5 })).choices.length, 1);
});

t.test('at ten times the load the server’s own queue stays empty', async (t) => {
  const peak = watchPeak('requests_deferred');
  const body = { ...user('Tell me a story about the sea.'), max_completion_tokens: 30 };
  let served = 0;
  const caller = async (at: number): Promise<void> => {
    for (let i = 0; i < 5; i += 1) {
      const response = await sidecar.post('/chat/completions', { model: 'elsewhere', seed: at, ...body });
      await response.text();
      if (response.status === 200) served += 1;
    }
  };
  await Promise.all(Array.from({ length: 10 * SEATS }, (_, at) => caller(at)));
  t.equal(await peak(), 0, 'requests that waited in the server');
  t.ok(served > 5 * SEATS, `${served} served`);
});

/** Follows a gauge of the server; the returned function stops that and resolves with the highest reading. */
function watchPeak(name: string): () => Promise<number> {
  let most = 0;
  const ending = new AbortController();
  const watching = (async () => {
    while (!ending.signal.aborted) {
      most = Math.max(most, await metric(server.port, name));
      await new Promise((again) => setTimeout(again, 20));
    }
  })();
  return async () => {
    ending.abort();
    await watching;
    return most;
  };
}
