/** Reuse is visible in the usage, and nowhere else. */
import t from 'tap';
import { ENDLESS, OpenStream } from '../support/open-stream.js';
import { chunksOf, complete, contentOf } from '../support/replies.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { embeddedTestModel } from '../support/models.js';

/** Prompt tokens of one step: a request that runs alone reuses multiples of these. */
const CHUNK = 64;

const file = await embeddedTestModel();
const models = (more: object): object[] => [
  { id: CHAT, kind: 'chat', file, seats: 4, contextPerSeat: 2048, prefillTokensPerStep: CHUNK, ...more },
  { id: DECIDE, kind: 'decision', file, seats: 4, contextPerSeat: 8192, ...more },
];
const sidecar = await Sidecar.start(t, { config: { models: models({}) } });
const clean = await Sidecar.start(t, {
  config: { models: models({ prefixReuse: 'off', speculation: 'off' }), decisions: { isolate: false } },
});

type Messages = { role: string; content: string }[];

interface Answer {
  readonly text: string;
  readonly prompt: number;
  readonly cached: number;
}

async function say(to: Sidecar, messages: Messages): Promise<Answer> {
  const response = await to.chat({ messages, temperature: 0, max_tokens: 24 });
  const { choices, usage } = (await response.json()) as {
    choices: [{ message: { content: string } }];
    usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
  };
  const { prompt_tokens: prompt, prompt_tokens_details: details } = usage;
  return { text: choices[0].message.content, prompt, cached: details.cached_tokens };
}

t.test('the turns of a chat: the same text with and without reuse, and the cached tokens', async (t) => {
  const messages: Messages = [{ role: 'system', content: 'Be brief and kind. '.repeat(40) }];
  let last = 0;
  for (let turn = 0; turn < 3; turn += 1) {
    messages.push({ role: 'user', content: `And what of the ${turn}th? `.repeat(6) });
    const [reused, fresh] = [await say(sidecar, messages), await say(clean, messages)];
    t.equal(reused.text, fresh.text);
    t.same([fresh.cached, fresh.prompt], [0, reused.prompt]);
    // All whole steps of the previous turn.
    t.equal(reused.cached, Math.floor((last > 0 ? last - 1 : 0) / CHUNK) * CHUNK);
    last = reused.prompt;
    messages.push({ role: 'assistant', content: reused.text });
  }
  t.ok((await sidecar.metric('ra_sidecar_cached_tokens_total', { model: CHAT })) > 2 * CHUNK);
});

t.test('drafts show in the log and the metrics; the reply and its usage are those without', async (t) => {
  const prompt = 'One and two and three and four and five. '.repeat(8);
  const asked = { temperature: 0, max_tokens: 150 };
  const [drafted, plain] = [await complete(sidecar, prompt, asked), await complete(clean, prompt, asked)];
  t.equal(drafted.choices[0].message.content, plain.choices[0].message.content);
  t.equal(drafted.usage.completion_tokens, plain.usage.completion_tokens);
  const stream = await sidecar.chat({ messages: [{ role: 'user', content: prompt }], ...asked, stream: true });
  const streamed = contentOf(chunksOf(await stream.text()));
  t.equal(streamed, plain.choices[0].message.content, 'streamed');
  const line = await sidecar.logged('request', 1, ({ draftedTokens = 0 }) => Number(draftedTokens) > 0);
  t.ok(
    Number(line['acceptedTokens']) > 0,
    `${String(line['acceptedTokens'])} of ${String(line['draftedTokens'])} came`,
  );
  const counted = async (of: Sidecar): Promise<number> =>
    of.metric('ra_sidecar_accepted_tokens_total', { model: CHAT });
  t.ok((await counted(sidecar)) >= Number(line['acceptedTokens']));
  t.equal(await counted(clean), 0);
});

t.test('a stream reports it as well', async (t) => {
  const body = { messages: [{ role: 'user', content: 'Once more, please. '.repeat(40) }], max_tokens: 4 };
  await complete(sidecar, body.messages[0]?.content ?? '', { max_tokens: 4 });
  const stream = await sidecar.chat({ ...body, stream: true, stream_options: { include_usage: true } });
  const usage = chunksOf(await stream.text()).at(-1) as unknown as {
    usage: { prompt_tokens_details: { cached_tokens: number } };
  };
  t.ok(usage.usage.prompt_tokens_details.cached_tokens >= CHUNK);
});

t.test('a caller who leaves and comes back with the same prompt finds what its first try computed', async (t) => {
  const messages = [{ role: 'user', content: 'Where was I when I left, and why? '.repeat(30) }];
  (await OpenStream.begin(sidecar, { ...ENDLESS, messages })).leave();
  await sidecar.reaches('ra_sidecar_seats_busy', 0, { model: CHAT });
  const { prompt, cached } = await say(sidecar, messages);
  t.ok(cached > prompt - 2 * CHUNK, `${cached} of ${prompt} tokens`);
});

t.test('decisions with the same input again, isolated or together', async (t) => {
  const input = 'I was charged twice. Please send the second payment back. '.repeat(30);
  const questions = Array.from({ length: 8 }, (_, i) => ({
    id: `q${i}`,
    type: 'yes_no',
    question: `Is this about ${'money '.repeat(i + 1)}?`,
  }));
  const ask = async (of: Sidecar, some = questions): Promise<Map<string, [string, number]>> => {
    const response = await of.post('/decisions', { model: DECIDE, input, questions: some });
    const { answers } = (await response.json()) as {
      answers: Record<string, { probabilities: { yes: number }; label_mass: number }>;
    };
    return new Map(
      Object.entries(answers).map(([id, { probabilities, label_mass: mass }]) => [
        id,
        [`${probabilities.yes} ${mass}`, probabilities.yes],
      ]),
    );
  };
  const first = await ask(sidecar);
  const again = await ask(sidecar, questions.toReversed());
  for (const [id, [bits]] of first) t.equal(again.get(id)?.[0], bits, id);
  t.ok((await sidecar.metric('ra_sidecar_cached_tokens_total', { model: DECIDE })) > 100);

  const together = await ask(clean);
  t.equal(together.size, questions.length);
  for (const [id, [, yes]] of first) {
    t.ok(Math.abs((together.get(id)?.[1] ?? NaN) - yes) < 0.05, `${id} is close to the isolated one`);
  }
  t.equal(await clean.metric('ra_sidecar_seats_busy', { model: DECIDE }), 0);
});
