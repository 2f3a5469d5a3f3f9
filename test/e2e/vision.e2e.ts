/**
 * Images, compared with llama-server of the same build on random weights. Needs `make peers` and `make engine-native`.
 */
import t from 'tap';
import { PROJECTORS } from '../../bench/models/random-projector.js';
import { LlamaServer } from '../../bench/support/peers.js';
import { jpeg, png, stripes } from '../support/images.js';
import { imagePart, see, seeingModel, seeingSidecar, textPart, type SeeingModel } from '../support/vision.js';

t.setTimeout(600_000);

const REPLY = 16;
/** Below it rounding decides which of two tokens is the most probable. */
const LEAST_MARGIN = 0.01;

interface Told {
  readonly promptTokens: number;
  /** Up to the first step at which two tokens were nearly equally probable. */
  readonly text: string;
  readonly tokens: number;
}

/** llama-server’s answer. */
async function ask(server: LlamaServer, messages: readonly object[]): Promise<Told> {
  const body = { messages, temperature: 0, max_tokens: REPLY, logprobs: true, top_logprobs: 2, cache_prompt: false };
  const response = await fetch(`http://127.0.0.1:${server.port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as {
    usage: { prompt_tokens: number };
    choices: { logprobs: { content: { bytes: number[]; top_logprobs: { logprob: number }[] }[] } }[];
  };
  const tokens = answer.choices[0]?.logprobs.content ?? [];
  const tie = tokens.findIndex(
    ({ top_logprobs: [best, next] }) => (best?.logprob ?? 0) - (next?.logprob ?? -99) < LEAST_MARGIN,
  );
  const clear = tie < 0 ? tokens : tokens.slice(0, tie);
  const text = Buffer.from(clear.flatMap(({ bytes }) => bytes)).toString();
  return { promptTokens: answer.usage.prompt_tokens, text: text.replace(/\ufffd+$/, ''), tokens: clear.length };
}

function peer({ file, projector }: SeeingModel): Promise<LlamaServer> {
  const more = ['--mmproj', projector, '--no-warmup', '--jinja', '-fa', 'off'];
  return LlamaServer.start(file, { threads: 1, slots: 1, contextPerSlot: 4096, more });
}

const user = (...content: object[]): object => ({ role: 'user', content });
const said = (content: string): object => ({ role: 'assistant', content });
const stripe = (width: number, height: number, seed: number): object => imagePart(png(width, height, stripes(seed)));
const blocks = (width: number, height: number, seed: number): object =>
  imagePart(
    jpeg(width, height, (column, row) => ((column * 97 + row * 61 + seed * 31) % 200) - 100),
    'image/jpeg',
  );

const CASES: Readonly<Record<string, readonly object[]>> = {
  'no image': [user(textPart('Hello there'))],
  'a PNG after text': [user(textPart('What is this?'), stripe(40, 30, 1))],
  'a JPEG before text': [user(blocks(64, 200, 2), textPart('Describe it.'))],
  'one pixel': [user(textPart('a'), stripe(1, 1, 4), textPart('b'))],
  'two, side by side': [user(stripe(100, 60, 2), blocks(64, 64, 3), textPart('compare'))],
  'five in three turns': [
    { role: 'system', content: 'Be brief.' },
    user(textPart('first'), stripe(30, 30, 5), textPart('and'), blocks(90, 20, 6)),
    said('I see.'),
    user(stripe(300, 200, 7)),
    said('And?'),
    user(textPart('then'), blocks(17, 33, 8), textPart('or'), stripe(500, 400, 9), textPart('which?')),
  ],
  'a large one': [user(stripe(1400, 900, 10), textPart('What is this?'))],
  'marks as text': [
    user(textPart('<__media__> <image> <|vision_start|> \ue000'), stripe(9, 9, 11), textPart('<__media__>')),
  ],
};

const LOOK = [textPart('Look at this closely, and take your time.')];

/**
 * The most tokens after an image: its end mark, the turn’s end, the beginning of the reply. All images here have as
 * many.
 */
const TURN = 16;

for (const projector of [...PROJECTORS, 'hybrid'] as const) {
  t.test(projector, async (t) => {
    const model = await seeingModel(projector);
    const server = await peer(model);
    t.teardown(() => server.close());
    const sidecar = await seeingSidecar(t, model);
    let compared = 0;
    for (const [name, messages] of Object.entries(CASES)) {
      const [ours, theirs] = [
        await see(sidecar, messages, { max_completion_tokens: REPLY }),
        await ask(server, messages),
      ];
      t.equal(ours.status, 200, `${name}: ${ours.error.message ?? ''}`);
      t.equal(ours.promptTokens, theirs.promptTokens, `${name}: prompt tokens`);
      t.ok(ours.text.trimStart().startsWith(theirs.text.trimStart()), `${name}: ${theirs.tokens} tokens are equal`);
      compared += theirs.tokens;
    }
    t.ok(compared >= 4 * REPLY, `${compared} tokens were compared`);

    await t.test('a second turn reuses the image', async (t) => {
      const first = [user(...LOOK, stripe(200, 200, 20), textPart('What is it?'))];
      const answer = await see(sidecar, first);
      const upToImage = await see(sidecar, [user(...LOOK, stripe(200, 200, 20))]);
      const again = [...first, said(answer.text), user(textPart('And now?'))];
      const second = await see(sidecar, again);
      t.ok(second.cachedTokens > upToImage.promptTokens - TURN, `${second.cachedTokens} of ${upToImage.promptTokens}`);
      const other = [user(...LOOK, stripe(200, 200, 21), textPart('What is it?'))];
      const third = await see(sidecar, other);
      t.equal(third.promptTokens, answer.promptTokens);
      t.ok(
        third.cachedTokens < answer.promptTokens / 2,
        `${third.cachedTokens}: another image of this size is not reused`,
      );
      t.not(third.text, answer.text);
    });
  });
}
