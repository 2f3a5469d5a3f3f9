/** Images sent by OpenAI’s client and the `ai` SDK, and beside other requests. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import t from 'tap';
import { dataUrl, jpeg, png, stripes } from '../support/images.js';
import { imagePart, SEEING, see, seeingModel, seeingSidecar, textPart, type Answer } from '../support/vision.js';

t.setTimeout(300_000);

const model = await seeingModel('qwen2vl_merger');
const sidecar = await seeingSidecar(t, model, { seats: 8, config: { contract: 'compatible' } });
const user = (...content: object[]): object => ({ role: 'user', content });
const photo = png(120, 90, stripes(3));
const TOKENS = 8;

/** The same question by plain HTTP. */
const plain = await see(sidecar, [user(textPart('What is this?'), imagePart(photo))], {
  max_completion_tokens: TOKENS,
});

t.test('the openai client: whole, streamed, and with the Responses API', async (t) => {
  const client = new OpenAI({ apiKey: sidecar.key, baseURL: sidecar.base, maxRetries: 0 });
  const messages = [
    {
      role: 'user' as const,
      content: [
        { type: 'text' as const, text: 'What is this?' },
        { type: 'image_url' as const, image_url: { url: dataUrl(photo), detail: 'auto' as const } },
      ],
    },
  ];
  const body = { model: SEEING, messages, temperature: 0, max_completion_tokens: TOKENS };
  const whole = await client.chat.completions.create(body);
  t.equal(whole.choices[0]?.message.content, plain.text);
  t.equal(whole.usage?.prompt_tokens, plain.promptTokens);
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    text += chunk.choices[0]?.delta.content ?? '';
  }
  t.equal(text, plain.text);
  const response = await client.responses.create({
    model: SEEING,
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'What is this?' },
          { type: 'input_image', image_url: dataUrl(photo), detail: 'auto' },
        ],
      },
    ],
    temperature: 0,
    max_output_tokens: 16,
  });
  t.equal(response.usage?.input_tokens, plain.promptTokens);
  t.ok(response.output_text.startsWith(plain.text));
});

t.test('the ai SDK, whole and streamed', async (t) => {
  const provider = createOpenAICompatible({
    name: 'ra',
    baseURL: sidecar.base,
    apiKey: sidecar.key,
    includeUsage: true,
  });
  const asked = {
    model: provider(SEEING),
    messages: [
      {
        role: 'user' as const,
        content: [
          { type: 'text' as const, text: 'What is this?' },
          { type: 'image' as const, image: photo, mediaType: 'image/png' },
        ],
      },
    ],
    maxOutputTokens: TOKENS,
    temperature: 0,
    maxRetries: 0,
  };
  const whole = await generateText(asked);
  t.equal(whole.text, plain.text);
  t.equal(whole.usage.inputTokens, plain.promptTokens);
  t.equal(await streamText(asked).text, plain.text);
});

t.test('eight requests with and without images at once: the same replies as alone, except for rounding', async (t) => {
  const asks = Array.from({ length: 8 }, (_, i) => [
    user(
      textPart(`Question ${i}.`),
      ...(i % 2 === 0 ? [imagePart(png(40 + 30 * i, 50 + 10 * i, stripes(50 + i)))] : []),
      ...(i % 4 === 0
        ? [
            imagePart(
              jpeg(80, 80, (x, y) => x * y + i),
              'image/jpeg',
            ),
          ]
        : []),
      textPart('Well?'),
    ),
  ]);
  const ask = (messages: readonly object[]): Promise<Answer> =>
    see(sidecar, messages, { max_completion_tokens: TOKENS });
  const alone: Answer[] = [];
  for (const messages of asks) alone.push(await ask(messages));
  const rounds = await Promise.all([1, 2, 3].map(async () => await Promise.all(asks.map((messages) => ask(messages)))));
  let same = 0;
  for (const together of rounds) {
    for (const [i, answer] of together.entries()) {
      t.equal(answer.status, 200, `${i}`);
      t.equal(answer.promptTokens, alone[i]?.promptTokens);
      if (answer.text === alone[i]?.text) same += 1;
    }
  }
  t.comment(`${same} of 24 replies are equal`);
  t.ok(same >= 16, `${same} of 24`);
});
