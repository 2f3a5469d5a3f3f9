/**
 * Images of a request: counted by the vision process, placed in the prompt, and encoded when their engine requests
 * them.
 */
import t from 'tap';
import { placeInPrompt } from '../../../sidecar/api/images.js';
import type { Prompt } from '../../../engine/protocol/prompt.js';
import type { RequestImage } from '../../../sidecar/prompts/prompt-maker.js';
import type {
  Encoded,
  EncodeTask,
  Encoding,
  Layout,
  Size,
  Vision,
  VisionFacts,
} from '../../../sidecar/vision/client.js';

const facts: VisionFacts = {
  projectorVersion: 'p1',
  whole: false,
  confinement: { filtered: true, bounded: true, ownUser: true },
};

/** One embedding for each ten pixels of the area, framed by two tokens. */
class FakeVision implements Vision {
  readonly state = 'ready';
  readonly problem = undefined;
  readonly readyInMs = 0;
  facts: VisionFacts | undefined = facts;
  maxTokens = 1000;
  secret = new Uint8Array(32);
  readonly tasks: EncodeTask[] = [];
  readonly sizes: Size[] = [];
  cancelled = 0;
  answers: Encoded = { kind: 'encoded', embeddings: [Float32Array.of(1), Float32Array.of(2)] };
  layoutKind: Layout['kind'] = 'layout';

  layout(size: Size): Promise<Layout> {
    this.sizes.push(size);
    if (this.layoutKind !== 'layout') return Promise.resolve({ kind: this.layoutKind });
    const count = Math.ceil((size.width * size.height) / 10_000);
    const part = { kind: 'embeddings', count, positions: count, columns: 0 } as const;
    return Promise.resolve({ kind: 'layout', parts: [{ kind: 'tokens', tokens: Uint32Array.of(7, 8) }, part, part] });
  }

  encode(task: EncodeTask): Encoding {
    this.tasks.push(task);
    return { result: Promise.resolve(this.answers), cancel: () => void (this.cancelled += 1) };
  }
}

const text = (...tokens: number[]): Prompt[number] => ({ kind: 'tokens', tokens: Uint32Array.from(tokens) });
const image = (of: number, width = 200, height = 100, low = false): RequestImage => ({
  bytes: Uint8Array.of(of),
  size: { width, height },
  low,
  sha256: new Uint8Array(32).fill(of),
});

async function seen(
  vision: Vision,
  images: RequestImage[],
  scope = 'all',
): Promise<Extract<Awaited<ReturnType<typeof placeInPrompt>>, { kind: 'placed' }>> {
  const texts = Array.from({ length: images.length + 1 }, (_, i) => text(i + 1));
  const found = await placeInPrompt(vision, texts, images, { account: 'a', scope, param: 'p' });
  if (found.kind !== 'placed') throw new Error(found.error.message);
  return found;
}

const digests = (prompt: Prompt): string[] =>
  prompt.flatMap((segment) => (segment.kind === 'image' ? [Buffer.from(segment.digest).toString('hex')] : []));

t.test('an image’s tokens are in the prompt, and it is encoded once for all of its parts', async (t) => {
  const vision = new FakeVision();
  const { prompt, images } = await seen(vision, [image(1)]);
  t.same(
    prompt.map(({ kind, tokens }) => [kind, tokens.length]),
    [
      ['tokens', 3],
      ['image', 2],
      ['image', 2],
      ['tokens', 1],
    ],
  );
  t.same(vision.tasks, [], 'not before it is requested');
  t.same(await images.embeddings(1), Float32Array.of(2));
  t.same(await images.embeddings(0), Float32Array.of(1));
  t.equal(vision.tasks.length, 1);
  t.match(vision.tasks[0], { bytes: Uint8Array.of(1), size: { width: 200, height: 100 } });
});

t.test('digests depend on image, size, scope, projector and secret, and on nothing else', async (t) => {
  const of = async (vision: Vision, one: RequestImage, scope?: string): Promise<string | undefined> =>
    digests((await seen(vision, [one], scope)).prompt)[0];
  const base = await of(new FakeVision(), image(1));
  t.equal(await of(new FakeVision(), image(1)), base);
  t.not(await of(new FakeVision(), image(2)), base);
  t.not(await of(new FakeVision(), image(1, 100, 200)), base);
  t.not(await of(new FakeVision(), image(1), 'account'), base);
  const [other, secret, fewer] = [new FakeVision(), new FakeVision(), new FakeVision()];
  other.facts = { ...facts, projectorVersion: 'p2' };
  secret.secret = new Uint8Array(32).fill(1);
  fewer.maxTokens = 999;
  for (const vision of [other, secret, fewer]) t.not(await of(vision, image(1)), base);
});

t.test('detail low reduces the tokens', async (t) => {
  const vision = new FakeVision();
  const { prompt, images } = await seen(vision, [image(1, 2000, 1000, true)]);
  t.equal(prompt[1]?.tokens.length, 14, '512 x 256 pixels');
  await images.embeddings(0);
  t.match(vision.tasks[0], { size: { width: 2000, height: 1000 }, shrunk: { width: 512, height: 256 } });
  const whole = await seen(vision, [image(1, 300, 200, true)]);
  t.equal(whole.prompt[1]?.tokens.length, 6, 'a small one is unchanged');
});

t.test('the bound of an image’s tokens is of its embeddings alone', async (t) => {
  const vision = new FakeVision();
  // Two parts of one embedding each, and two tokens of text.
  vision.maxTokens = 2;
  t.equal((await seen(vision, [image(1, 100, 100)])).prompt.length, 4);
  vision.maxTokens = 1;
  await t.rejects(seen(vision, [image(1, 100, 100)]), /an image of 2 tokens; at most 1 are taken/);
});

t.test('refusals', async (t) => {
  const vision = new FakeVision();
  const ask = async (): Promise<object> => {
    const found = await placeInPrompt(vision, [text(1), text(2)], [image(1, 4000, 3000)], {
      account: 'a',
      scope: 'all',
      param: 'p',
    });
    return found.kind === 'refused' ? { status: found.error.status, code: found.error.code } : found;
  };
  t.same(await ask(), { status: 400, code: 'bad_request' }, 'too many tokens');
  vision.layoutKind = 'unavailable';
  t.same(await ask(), { status: 503, code: 'cold' });
  vision.layoutKind = 'failed';
  t.same(await ask(), { status: 502, code: 'bad_gateway' });
});

t.test('images that cannot be encoded, and requests that come too late', async (t) => {
  const vision = new FakeVision();
  vision.answers = { kind: 'undecodable' };
  const damaged = await seen(vision, [image(1)]);
  t.match(await damaged.images.embeddings(0), { kind: 'image-failed', error: { status: 400, param: 'p' } });
  vision.answers = { kind: 'failed' };
  const lost = await seen(vision, [image(1)]);
  t.match(await lost.images.embeddings(0), { kind: 'image-failed', error: { status: 502 } });
  t.match(await lost.images.embeddings(9), { kind: 'image-failed' });
  lost.images.close();
  t.equal(vision.cancelled, 1);
  t.match(await lost.images.embeddings(0), { kind: 'image-failed' });
  t.equal(vision.tasks.length, 2);
});
