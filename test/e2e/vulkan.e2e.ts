/**
 * An engine on a GPU: device memory, layers and KV on it, its kernels and faults. It uses Mesa’s lavapipe, which
 * implements Vulkan on a CPU, so results are tested and speed is not.
 */
import t from 'tap';
import type { Check } from '../../sidecar/commands/host-checks.js';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { runCli } from '../support/cli.js';
import { endsEarly, OpenStream } from '../support/open-stream.js';
import { checked, type Completion } from '../support/replies.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { onLavapipe } from './lavapipe.js';
import { addLocked } from './npm-packages.js';

addLocked('@node-llama-cpp/linux-x64-vulkan');

/** Prompt tokens of one step: reused prefixes are multiples of it. */
const CHUNK = 64;

const sizes = { seats: 6, contextPerSeat: 2048, prefillTokensPerStep: CHUNK };
const chat = { id: CHAT, kind: 'chat', file: EMBEDDED_MODEL, ...sizes };
const decide = { id: DECIDE, kind: 'decision', file: EMBEDDED_MODEL, seats: 2, contextPerSeat: 8192 };

/** The largest difference of the digits of two backends, which add in different orders. */
const NEAR = 0.01;

interface Decision {
  readonly answers: Readonly<Record<string, { readonly probabilities: Readonly<Record<string, number>> }>>;
}

async function doctor(models: readonly object[], environment: Readonly<Record<string, string>>): Promise<Check[]> {
  const { stdout } = await runCli(['doctor', '--json'], {
    ...environment,
    RA_LISTEN_PORT: '0',
    RA_OPERATORS_PORT: '0',
    RA_MODELS: JSON.stringify(models),
  });
  return (JSON.parse(stdout) as { checks: Check[] }).checks;
}

t.test('doctor: the device, its memory, and the layers on it', async (t) => {
  const checks = await doctor([chat], onLavapipe('taken'));
  t.match(
    checks.filter(({ what }) => ['GPU memory', 'backend', 'GPU kernels', `model ${CHAT}`].includes(what)),
    [
      { what: 'GPU memory', level: 'ok', says: /free of/ },
      { what: 'backend', level: 'ok', says: /^vulkan on llvmpipe .*\(auto: available are vulkan, CPU\)/ },
      { what: 'GPU kernels', level: 'ok', says: /^the first step of a small model took \d+ ms$/ },
      { level: 'ok', says: /on 7 of 7 layers on the GPU \(vulkan\).*and [\d.]+ MiB of GPU memory, and up to / },
    ],
  );
});

t.test('on a device', async (t) => {
  const gpu = await Sidecar.start(t, { config: { models: [chat, decide] }, environment: onLavapipe('taken') });
  for (const model of [CHAT, DECIDE]) {
    t.match(await gpu.logged('engine ready', 1, (line) => line['model'] === model), { backend: 'vulkan' });
  }
  const cpu = await Sidecar.start(t, {
    config: { models: [chat, decide].map((model) => ({ ...model, gpu: false })) },
  });
  t.match(await cpu.logged('engine ready'), { backend: 'cpu' });

  const completion = async (from: Sidecar, body: Readonly<Record<string, unknown>>): Promise<Completion> => {
    const response = await from.chat({ temperature: 0, ...body });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} ${text}`);
    return checked('ChatCompletion', text) as Completion;
  };
  const user = (content: string): object => ({ messages: [{ role: 'user', content }] });
  const QUESTIONS = ['Hello, who are you?', 'What is 2 plus 3?', 'Name three days.', 'Is ice cold?', 'Say yes.'];

  await t.test('the most probable words equal those of a CPU, alone and in a batch', async (t) => {
    const bodies = QUESTIONS.map((text) => ({ ...user(text), max_tokens: 40 }));
    const wanted: unknown[] = [];
    for (const body of bodies) wanted.push((await completion(cpu, body)).choices);
    const alone: unknown[] = [];
    for (const body of bodies) alone.push((await completion(gpu, body)).choices);
    t.strictSame(alone, wanted);
    const together = await Promise.all(bodies.map((body) => completion(gpu, body)));
    t.strictSame(
      together.map(({ choices }) => choices),
      wanted,
    );
  });

  await t.test('several replies to one prompt, whose state is copied on the device', async (t) => {
    const one = await completion(gpu, { ...user('Name three days.'), max_tokens: 24 });
    const { choices } = await completion(gpu, { ...user('Name three days.'), max_tokens: 24, n: 4 });
    t.strictSame(
      choices.map(({ message }) => message),
      Array.from({ length: 4 }, () => one.choices[0].message),
    );
  });

  await t.test('a seed reproduces a sampled reply with penalties', async (t) => {
    const body = {
      ...user('Tell me of a river.'),
      temperature: 1,
      top_p: 0.9,
      frequency_penalty: 0.5,
      seed: 7,
      max_tokens: 32,
    };
    t.strictSame((await completion(gpu, body)).choices, (await completion(gpu, body)).choices);
  });

  await t.test('JSON, constrained by a grammar', async (t) => {
    const body = { ...user('Answer as JSON: is ice cold?'), max_tokens: 60, response_format: { type: 'json_object' } };
    const [{ message }] = (await completion(gpu, body)).choices;
    t.match(message.content, /^\s*\{/);
    t.strictSame(message, (await completion(cpu, body)).choices[0].message);
  });

  await t.test('KV on the device is reused, and does not change the reply', async (t) => {
    const rules = { role: 'system', content: 'Be brief and kind. '.repeat(60) };
    const ask = (content: string): Readonly<Record<string, unknown>> => ({
      messages: [rules, { role: 'user', content }],
      max_tokens: 24,
    });
    await completion(gpu, ask('Hello'));
    const again = (await completion(gpu, ask('What is 2 plus 3?'))) as Completion & {
      usage: { prompt_tokens_details: { cached_tokens: number } };
    };
    t.ok(again.usage.prompt_tokens_details.cached_tokens >= 2 * CHUNK);
    t.strictSame(again.choices, (await completion(cpu, ask('What is 2 plus 3?'))).choices);
  });

  await t.test('decisions: the probabilities of a CPU, except for the last digits', async (t) => {
    const body = {
      model: DECIDE,
      input: 'I was charged twice. Please send the second payment back.',
      questions: [
        { id: 'refund', type: 'yes_no', question: 'Does the customer ask for a refund?' },
        {
          id: 'team',
          type: 'choice',
          question: 'Who is it for?',
          options: [{ name: 'billing' }, { name: 'delivery' }],
        },
        { id: 'urgency', type: 'score', question: 'How urgent is it?', levels: ['can wait', 'today', 'now'] },
      ],
    };
    const probabilities = async (from: Sidecar): Promise<number[]> => {
      const { answers } = checked('Decisions', await (await from.post('/decisions', body)).text()) as Decision;
      return Object.values(answers).flatMap((answer) => Object.values(answer.probabilities));
    };
    const [here, there] = [await probabilities(gpu), await probabilities(cpu)];
    t.equal(here.length, 7);
    here.forEach((p, i) => t.ok(Math.abs(p - (there[i] ?? NaN)) < NEAR, `${p} for ${there[i]}`));
    t.strictSame(await probabilities(gpu), here, 'and bit for bit the same when asked again');
  });

  await t.test('an engine that is killed while it uses its device is restarted', async (t) => {
    const stream = await OpenStream.begin(gpu);
    process.kill(gpu.enginePid(CHAT), 'SIGKILL');
    endsEarly(t, await stream.response, { code: 'bad_gateway', type: 'server_error' });
    await gpu.logged('engine ready', 2, (line) => line['model'] === CHAT);
    const body = { ...user('Hello, who are you?'), max_tokens: 40 };
    t.strictSame((await completion(gpu, body)).choices, (await completion(cpu, body)).choices);
  });
});

t.test('a driver without a device: a CPU, unless Vulkan was configured', async (t) => {
  const none = onLavapipe('passed over');
  const sidecar = await Sidecar.start(t, { config: { models: [chat] }, environment: none });
  t.match(await sidecar.logged('engine ready'), { backend: 'cpu' });
  t.equal((await sidecar.chat({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 })).status, 200);
  const [backend] = (await doctor([chat], none)).filter(({ what }) => what === 'backend');
  t.match(backend, { level: 'warn', says: /^CPU \(auto: .*no device was found\)/ });

  const named = { ...chat, gpu: 'vulkan' };
  const [refused] = (await doctor([named], none)).filter(({ what }) => what === 'backend');
  t.match(refused, { level: 'fail', says: 'vulkan finds no device on this machine' });
  const refuses = await Sidecar.launch(t, { config: { models: [named] }, environment: none });
  t.match(await refuses.exited(), { code: 1 });
  t.match(
    refuses.printed,
    `model ${CHAT} cannot be served from ${EMBEDDED_MODEL}: vulkan finds no device on this machine`,
  );
});
