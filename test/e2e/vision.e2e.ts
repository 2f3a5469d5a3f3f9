/**
 * Images, compared with llama-server of the same build on random weights. Needs `make peers`. The table of
 * projectors in docs/models.md is what this test compares; `write` as an argument writes it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import type { ProjectorName } from '../../bench/models/random-projector.js';
import { LlamaServer } from '../../bench/support/peers.js';
import { deflateSync } from 'node:zlib';
import { jpeg, png, pngOf, stripes } from '../support/images.js';
import { OpenStream } from '../support/open-stream.js';
import { sourceRoot } from '../support/source-root.js';
import {
  imagePart,
  modelOf,
  see,
  seeingSidecar,
  SEEING,
  SEEING_FAMILIES,
  textPart,
  type SeeingModel,
} from '../support/vision.js';

t.setTimeout(600_000);

const PAGE = `${sourceRoot}/docs/models.md`;
const [BEGIN, END] = ['<!-- projectors: begin -->', '<!-- projectors: end -->'];

const CONTEXT = 4096;
/** Of one image, where the projector has a choice. */
const IMAGE_TOKENS = 1024;
/** The side of the largest image that is taken unless the settings say otherwise, px. */
const LARGEST = 4096;
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
  const bounds = ['--image-max-tokens', `${IMAGE_TOKENS}`];
  // It aborts over an image that must be whole and is longer than a batch.
  const batch = ['-b', `${2 * IMAGE_TOKENS}`, '-ub', `${2 * IMAGE_TOKENS}`];
  const more = ['--mmproj', projector, ...bounds, ...batch, '--no-warmup', '--jinja', '-fa', 'off'];
  return LlamaServer.start(file, { threads: 1, slots: 1, contextPerSlot: CONTEXT, more });
}

const user = (...content: object[]): object => ({ role: 'user', content });
const said = (content: string): object => ({ role: 'assistant', content });
const stripe = (width: number, height: number, seed: number): object => imagePart(png(width, height, stripes(seed)));
const blocks = (width: number, height: number, seed: number): object =>
  imagePart(
    jpeg(width, height, (column, row) => ((column * 97 + row * 61 + seed * 31) % 200) - 100),
    'image/jpeg',
  );

/** A pattern without a period that its resizing would show; painted by pixels it would take ten seconds. */
function largest(): object {
  const row = 1 + 3 * LARGEST;
  const rows = Buffer.alloc(
    LARGEST * row,
    Uint8Array.from({ length: 997 }, (_, i) => (i * i) & 255),
  );
  for (let y = 0; y < LARGEST; y++) rows[y * row] = 0;
  return imagePart(pngOf(LARGEST, LARGEST, deflateSync(rows, { level: 1 })));
}

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
  'the largest': [user(textPart('And this?'), largest())],
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

/** Eight questions, with no image, one or two. */
const EIGHT = Array.from({ length: 8 }, (_, i) => [
  user(
    textPart(`Question ${i}.`),
    ...(i % 2 === 0 ? [stripe(40 + 30 * i, 50 + 10 * i, 50 + i)] : []),
    textPart('Well?'),
    ...(i % 4 === 0 ? [blocks(80, 80, i)] : []),
  ),
]);

const rows: string[] = [];

/** As an argument: the only architecture that is tested; then the table is not. */
const only = process.argv.slice(2).find((argument) => argument !== 'write');

for (const family of SEEING_FAMILIES.filter(({ architecture }) => only === undefined || architecture === only)) {
  const { projector, architecture, state } = family;
  t.test(`${projector} with ${architecture}`, async (t) => {
    const model = await modelOf(family);
    const server = await peer(model);
    t.teardown(() => server.close());
    const more = { seats: EIGHT.length, contextPerSeat: CONTEXT, vision: { maxTokensPerImage: IMAGE_TOKENS } };
    const sidecar = await seeingSidecar(t, model, more);
    const visionPid = Number(sidecar.lines.find(({ event }) => event === 'vision ready')?.['pid']);
    const same = (t: Test, text: string, theirs: Told, name: string): boolean =>
      t.ok(text.trimStart().startsWith(theirs.text.trimStart()), `${name}: ${theirs.tokens} tokens are equal`);
    let compared = 0;
    for (const [name, messages] of Object.entries(CASES)) {
      const [ours, theirs] = [
        await see(sidecar, messages, { max_completion_tokens: REPLY }),
        await ask(server, messages),
      ];
      t.equal(ours.status, 200, `${name}: ${ours.error.message ?? ''}`);
      t.equal(ours.promptTokens, theirs.promptTokens, `${name}: prompt tokens`);
      same(t, ours.text, theirs, name);
      compared += theirs.tokens;
    }
    t.ok(compared >= 4 * REPLY, `${compared} tokens were compared`);

    await t.test('a second turn reuses the image, and asks the vision process nothing', async (t) => {
      const first = [user(...LOOK, stripe(200, 200, 20), textPart('What is it?'))];
      const answer = await see(sidecar, first);
      const upToImage = await see(sidecar, [user(...LOOK, stripe(200, 200, 20))]);
      const again = [...first, said(answer.text), user(textPart('And now?'))];
      process.kill(visionPid, 'SIGSTOP');
      const second = await see(sidecar, again);
      process.kill(visionPid, 'SIGCONT');
      t.equal(second.status, 200);
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

    await t.test('eight seats of mixed text and images reply as alone, but for near ties', async (t) => {
      const alone: Told[] = [];
      for (const messages of EIGHT) alone.push(await ask(server, messages));
      const together = await Promise.all(EIGHT.map((messages) => see(sidecar, messages)));
      for (const [i, theirs] of alone.entries()) {
        t.equal(together[i]?.promptTokens, theirs.promptTokens, `${i}: prompt tokens`);
        same(t, together[i]?.text ?? '', theirs, `${i}`);
      }
    });

    await t.test('three replies to one prompt with an image', async (t) => {
      const messages = [user(stripe(77, 66, 70), textPart('Three times.'))];
      const theirs = await ask(server, messages);
      const body = { model: SEEING, messages, temperature: 0, n: 3, max_completion_tokens: REPLY };
      const answer = (await (await sidecar.post('/chat/completions', body)).json()) as Three;
      t.equal(answer.usage.prompt_tokens, theirs.promptTokens);
      t.equal(answer.choices.length, 3);
      for (const { message } of answer.choices) same(t, textOf(message), theirs, 'a choice');
    });

    await t.test('a caller that disconnects while its reply is decoded leaves nothing behind', async (t) => {
      const messages = [user(stripe(50, 50, 40), textPart('Go on.'))];
      const before = await see(sidecar, messages);
      const endless = { model: SEEING, messages, temperature: 0, frequency_penalty: -2, max_tokens: 3000 };
      const streams = await Promise.all(EIGHT.map(() => OpenStream.begin(sidecar, endless, '"role":"assistant"')));
      for (const stream of streams) stream.leave();
      const all = await Promise.all(EIGHT.map(() => see(sidecar, messages)));
      const theirs = await ask(server, messages);
      for (const each of [before, ...all]) same(t, each.text, theirs, 'all eight seats are free');
    });

    if (t.passing()) rows.push(`| ${projector} | ${architecture} | ${state} | ${wayOf(projector)} |`);
  });
}

interface Message {
  readonly content: string | null;
  readonly reasoning_content?: string;
}

interface Three {
  readonly choices: readonly { readonly message: Message }[];
  readonly usage: { readonly prompt_tokens: number };
}

function textOf({ content, reasoning_content: thought = '' }: Message): string {
  return `${thought}${content ?? ''}`;
}

/** How an image's embeddings are evaluated. */
function wayOf(projector: ProjectorName): string {
  switch (projector) {
    case 'mlp':
      return 'in chunks';
    case 'qwen2vl_merger':
    case 'qwen3vl_merger':
      return 'in chunks, positions of two dimensions';
    case 'gemma3':
    case 'gemma4v':
      return 'in one decode, attending to each other';
  }
}

t.test('the table is what was compared', async (t) => {
  const table = [
    BEGIN,
    '',
    '| projector | architecture | past state of | embeddings are evaluated |',
    '| --- | --- | --- | --- |',
    ...rows,
    '',
    END,
  ].join('\n');
  if (only !== undefined) return;
  const page = readFileSync(PAGE, 'utf8');
  const found = page.slice(page.indexOf(BEGIN), page.indexOf(END) + END.length);
  const cells = (text: string): string[] => text.split('\n').map((line) => line.replaceAll(/[\s-]+/g, ' '));
  if (process.argv.includes('write')) writeFileSync(PAGE, page.replace(found, table));
  else t.same(cells(found), cells(table));
});
