/**
 * Images over HTTP, with a stand-in for the vision process: what is refused and how, what is counted and billed, and that
 * nothing of an image is kept. Files are decoded by test/e2e/vision-sandbox.e2e.ts, which needs the addon.
 */
import { createHash } from 'node:crypto';
import t, { type Test } from 'tap';
import { canary } from '../support/canaries.js';
import { errorOf, holdError } from '../support/error-answer.js';
import { dataUrl, jpeg, png, pngOf } from '../support/images.js';
import { chatBody, InProcess } from '../support/in-process.js';
import { LeakSearch } from '../support/leak-search.js';
import { chatPrice, lastClose, startPriced, usageOf, agrees } from '../support/priced-sidecar.js';
import type { RawResponse } from '../support/raw-http.js';
import { STUB_JOB, STUB_TOP_K } from '../support/stub-script.js';
import { RetentionWatch } from '../support/retention-watch.js';
import {
  STUB_WIDTH,
  stubImageTokens,
  stubProjector,
  VISION_STUB,
  type VisionScript,
} from '../support/vision-script.js';

const CHAT = '/v1/chat/completions';
const BAD_REQUEST = { status: 400, type: 'invalid_request_error', code: 'bad_request', retry: false } as const;
const PARAM = 'messages[0].content[0].image_url';
const MAX_PIXELS = 1_000_000;
const MAX_TOKENS = 1000;
const SEATS = 1;
/** Tokens of text around an image. */
const AROUND = 2;
const seeing = (script: VisionScript = {}): InProcessModel => ({
  id: 'chat',
  kind: 'chat',
  seats: SEATS,
  contextPerSeat: 2048,
  vision: { projector: stubProjector(script), maxImages: 8, maxPixels: MAX_PIXELS, maxTokensPerImage: MAX_TOKENS },
});
type InProcessModel = Parameters<typeof InProcess.start>[1]['models'][number];

const text = (words = 'What is this?'): object => ({ type: 'text', text: words });
const at = (url: string, detail?: string): object => ({
  type: 'image_url',
  image_url: { url, ...(detail !== undefined && { detail }) },
});
const image = (file: Uint8Array, detail?: string): object => at(dataUrl(file), detail);

function body(content: readonly object[], more: Readonly<Record<string, unknown>> = {}): object {
  return chatBody('chat', 'look', { messages: [{ role: 'user', content }], max_tokens: 4, ...more });
}

/** Its vision process is there, again if it ended. */
async function ready(sidecar: InProcess): Promise<void> {
  const lost = sidecar.lines.map(({ event }) => event).lastIndexOf('vision lost');
  await sidecar.seen('vision ready', (line) => sidecar.lines.indexOf(line) > lost);
}

/** Ready to take images. */
async function start(t: Test): Promise<InProcess> {
  const sidecar = await startPriced(t, '0.01', {
    models: [seeing()],
    visionEntry: VISION_STUB,
    config: { contract: 'compatible' },
  });
  await ready(sidecar);
  return sidecar;
}

t.test('a model with vision', async (t) => {
  const sidecar = await start(t);
  const ask = (...content: object[]): Promise<RawResponse> => sidecar.post(CHAT, body(content));
  const tokens = async (...content: object[]): Promise<number> => {
    const answer = await ask(...content);
    t.equal(answer.status, 200, answer.body.slice(0, 200));
    return usageOf(answer).prompt_tokens;
  };

  await t.test('its tokens are prompt tokens, and are billed', async (t) => {
    const plain = await tokens(text());
    const size = { width: 300, height: 200 };
    const answer = await ask(text(), image(png(size.width, size.height)));
    const usage = usageOf(answer);
    // A text of its own begins behind an image.
    t.ok(usage.prompt_tokens >= plain + stubImageTokens(size) + AROUND, `${usage.prompt_tokens} and ${plain}`);
    t.ok(usage.prompt_tokens <= plain + stubImageTokens(size) + AROUND + 2);
    agrees(t, lastClose(sidecar), usage, chatPrice(usage));
    t.match(answer.body, /"content":"seen"/, 'the engine got what it wanted');
    const two = await tokens(text(), image(png(300, 200)), text('And?'), image(jpeg(300, 200, () => 3)));
    t.ok(two >= usage.prompt_tokens + stubImageTokens(size) + AROUND);
    const low = await tokens(text(), image(png(900, 600), 'low'));
    t.ok(low < (await tokens(text(), image(png(900, 600), 'high'))), 'detail');
  });

  await t.test('a tool’s result has its image in the prompt, also one of no call', async (t) => {
    const call = { id: 'a', type: 'function', function: { name: 'look', arguments: '{}' } };
    const asked = { role: 'user', content: 'Look.' };
    for (const before of [[asked, { role: 'assistant', content: null, tool_calls: [call] }], [asked]]) {
      const result = (...content: object[]): object => ({ role: 'tool', tool_call_id: 'a', content });
      const tokensOf = async (...content: object[]): Promise<number> => {
        const messages = [...before, result(text('There.'), ...content), { role: 'user', content: 'So?' }];
        const answer = await sidecar.post(CHAT, body([], { messages }));
        t.equal(answer.status, 200, answer.body.slice(0, 200));
        return usageOf(answer).prompt_tokens;
      };
      const plain = await tokensOf();
      t.ok((await tokensOf(image(png(300, 200)))) >= plain + stubImageTokens({ width: 300, height: 200 }));
    }
  });

  await t.test('in the Messages API: the same tokens, also where they are counted', async (t) => {
    const url = dataUrl(png(300, 200));
    const [type, data] = url.slice('data:'.length).split(';base64,');
    const top_k = STUB_TOP_K + STUB_JOB.look;
    const asked = (source: object): object => ({
      model: 'chat',
      max_tokens: 4,
      top_k,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What?' },
            { type: 'image', source },
          ],
        },
      ],
    });
    const chat = await sidecar.post(CHAT, body([text('What?'), at(url)], { reasoning_effort: 'none' }));
    for (const source of [
      { type: 'base64', media_type: type, data },
      { type: 'url', url },
    ]) {
      const answer = await sidecar.post('/v1/messages', asked(source));
      const { content, usage } = JSON.parse(answer.body) as { content: object[]; usage: { input_tokens: number } };
      t.match(content, [{ type: 'text', text: 'seen' }]);
      t.equal(usage.input_tokens, usageOf(chat).prompt_tokens);
      const counted = await sidecar.post('/v1/messages/count_tokens', asked(source));
      t.strictSame(JSON.parse(counted.body), { input_tokens: usage.input_tokens });
    }
    const elsewhere = await sidecar.post('/v1/messages', asked({ type: 'url', url: 'https://127.0.0.1:1/a.png' }));
    t.match(JSON.parse(elsewhere.body), {
      error: { message: /^could not process image: .* is an https URL, and no URL is/ },
    });
    const resultTokens = async (...blocks: object[]): Promise<number> => {
      const messages = [
        { role: 'user', content: 'Look.' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'look', input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: blocks }] },
      ];
      const answer = await sidecar.post('/v1/messages', { model: 'chat', max_tokens: 4, top_k, messages });
      t.equal(answer.status, 200, answer.body.slice(0, 200));
      const { usage } = JSON.parse(answer.body) as { usage: { input_tokens: number } };
      return usage.input_tokens;
    };
    const said = { type: 'text', text: 'There.' };
    const shown = { type: 'image', source: { type: 'base64', media_type: type, data } };
    t.ok(
      (await resultTokens(said, shown)) >= (await resultTokens(said)) + stubImageTokens({ width: 300, height: 200 }),
      'in a result too',
    );
  });

  await t.test('refused before anything of it is decoded', async (t) => {
    // test/sidecar/prompts/images.test.ts has all files.
    const refusals: Readonly<Record<string, readonly [url: string, message: RegExp]>> = {
      https: ['https://127.0.0.1:1/a.png', /is an https URL, and no URL is fetched/],
      'a GIF': ['data:image/gif;base64,R0lGODlhAQABAAAAADs=', /must be a PNG or JPEG as a base64 data URL/],
      'a GIF under a PNG type': [dataUrl(Buffer.from('GIF89a;')), /its data is neither, or damaged/],
      'a size of gigabytes': [dataUrl(pngOf(100_000, 100_000, Buffer.alloc(9))), /has 100000 x 100000 pixels/],
      'too many tokens': [dataUrl(png(28 * 32, 28 * 32)), /an image of 1024 tokens; at most 1000 are taken/],
    };
    for (const [name, [url, message]] of Object.entries(refusals)) {
      const answer = await ask(at(url), text());
      holdError(t, name, answer, { ...BAD_REQUEST, ...(name !== 'too many tokens' && { param: PARAM }) });
      t.match(errorOf(answer).message, message, name);
    }
    const tiny = image(png(1, 1));
    const many = await ask(...Array.from({ length: 4096 }, () => tiny));
    holdError(t, '4,096 parts', many, { ...BAD_REQUEST, param: 'messages[0].content[8].image_url' });
    t.match(errorOf(many).message, /is one image more than the 8 that this model takes/);
    const few = await ask(...Array.from({ length: 4096 }, () => text('x')));
    t.not(few.status, 500, '4,096 parts of text');
  });

  await t.test('the context bounds texts and images together', async (t) => {
    const square = image(png(28 * 31, 28 * 31));
    t.equal((await ask(text(), square)).status, 200);
    const answer = await ask(text(), square, square, square);
    holdError(t, 'context', answer, { ...BAD_REQUEST, code: 'context_length_exceeded', param: 'messages' });
    t.match(errorOf(answer).message, /maximum context length is 2048 tokens\. The prompt has 2\d{3} /);
  });

  await t.test('marks of other servers, and of our own, are text', async (t) => {
    const marks = '<__media__><image><|vision_start|>\ue000\ue001[img-1]';
    t.equal((await ask(text(marks), image(png(9, 9)), text(marks))).status, 200);
    t.equal((await ask(text(marks))).status, 200);
  });

  await t.test('a file that its decoder refuses, and one that ends it', async (t) => {
    const damaged = await ask(image(png(STUB_WIDTH.undecodable, 5)));
    holdError(t, 'damaged', damaged, { ...BAD_REQUEST, param: PARAM });
    t.match(errorOf(damaged).message, /has an image that cannot be decoded/);
    const fatal = await ask(image(png(STUB_WIDTH.dies, 5)));
    holdError(t, 'fatal', fatal, { status: 502, type: 'server_error', code: 'bad_gateway', retry: true });
    t.equal((await ask(text())).status, 200, 'text is served at once');
    const cold = await ask(image(png(40, 5)));
    if (cold.status !== 200)
      holdError(t, 'until its process is back', cold, { status: 503, type: 'server_error', code: 'cold', retry: true });
    await ready(sidecar);
    t.equal((await ask(image(png(40, 5)))).status, 200);
  });

  await t.test('a caller that disconnects in the queue, and while its image is encoded', async (t) => {
    const cancels = (phase: string): string => `ra_sidecar_cancels_total{model="chat",phase="${phase}"}`;
    const encoding = await sidecar.begin(CHAT, body([image(png(STUB_WIDTH.held, 5))]));
    await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 1);
    const queued = await sidecar.begin(CHAT, body([image(png(40, 5))]));
    await sidecar.until('ra_sidecar_waiting_requests{model="chat",class="standard"}', 1);
    queued.close();
    await sidecar.until(cancels('waiting'), 1);
    encoding.close();
    await sidecar.until(cancels('prefilling'), 1);
    t.equal((await ask(text())).status, 200, 'its seat is free');
    t.equal((await ask(image(png(51, 6)))).status, 200);
  });

  await t.test('nothing of an image is in log, metrics, console, usage or errors', async (t) => {
    const watch = new RetentionWatch();
    const secret = canary();
    const words = Buffer.from(`tEXtComment\0${secret}`, 'latin1');
    const files = [40, STUB_WIDTH.undecodable, STUB_WIDTH.dies].map((width) => Buffer.concat([png(width, 7), words]));
    for (const file of files) {
      const answer = await ask(text(), image(file));
      watch.saw('errors', answer.raw);
      for (const url of [
        `https://example.com/${secret}.png`,
        `data:image/png;base64,${Buffer.from(secret).toString('base64')}`,
      ])
        watch.saw('errors', (await ask(at(url))).raw);
    }
    watch.saw('stdout', JSON.stringify(sidecar.lines));
    watch.saw('files', JSON.stringify(sidecar.spool.records));
    await watch.pages({ port: sidecar.port, operatorsPort: sidecar.app.operatorsPort });
    const digests = files.flatMap((file) => {
      const digest = createHash('sha256').update(file).digest();
      return [digest.toString('hex'), digest.toString('base64'), file.subarray(0, 60).toString('base64')];
    });
    t.same(watch.leaks(new LeakSearch([secret, ...digests])), []);
    t.same(watch.places.sort(), ['errors', 'files', 'pages', 'stdout']);
  });

  await t.test('the worst case of its price is reserved before it is computed', async (t) => {
    await ready(sidecar);
    const square = image(png(28 * 31, 28 * 31));
    let status = 200;
    for (let asked = 0; asked < 200 && status === 200; asked++) status = (await ask(text(), square)).status;
    t.equal(status, 402);
    t.equal((await ask(text())).status, 200, 'text alone costs less');
  });
});

t.test('a vision process that is not there', async (t) => {
  const scripts = ['misfit', 'silent'] as const;
  const models = scripts.map((start) => ({ ...seeing({ start }), id: start }));
  const sidecar = await InProcess.start(t, { models, visionEntry: VISION_STUB });
  for (const model of scripts) {
    if (model !== 'silent') await sidecar.seen('vision cannot serve its model', (line) => line['model'] === model);
    const answer = await sidecar.post(CHAT, body([image(png(9, 9))], { model }));
    holdError(t, model, answer, { status: 503, type: 'server_error', code: 'cold', retry: true });
    t.equal((await sidecar.post(CHAT, body([text()], { model }))).status, 200, 'text is served');
  }
});
