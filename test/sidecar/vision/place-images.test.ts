import t from 'tap';
import { IMAGE_IDS, type Prompt } from '../../../engine/protocol/prompt.js';
import { placeImages, type ImageLayout } from '../../../sidecar/vision/place-images.js';

const tokens = (...of: number[]): Prompt[number] => ({ kind: 'tokens', tokens: Uint32Array.from(of) });
const embeddings = { kind: 'embeddings', count: 3, positions: 2, columns: 2 } as const;
const framed: ImageLayout['parts'] = [tokens(90), embeddings, tokens(91)] as ImageLayout['parts'];
const digest = (byte: number): Uint8Array => new Uint8Array(32).fill(byte);

t.test('adjacent texts become one segment, and each image is framed by its own', async (t) => {
  const { prompt, placed } = placeImages(
    [tokens(1, 2), tokens(3), tokens(4, 5)],
    [
      { parts: framed, digest: digest(1) },
      { parts: framed, digest: digest(2) },
    ],
    true,
  );
  t.match(prompt, [
    tokens(1, 2, 90),
    { kind: 'image', positions: 2, columns: 2, whole: true },
    tokens(91, 3, 90),
    { kind: 'image' },
    tokens(91, 4, 5),
  ]);
  t.same(placed, [
    { image: 0, part: 0 },
    { image: 1, part: 0 },
  ]);
});

t.test('an image of several parts, without text before and between', async (t) => {
  const { prompt, placed } = placeImages(
    [tokens(), tokens(7)],
    [{ parts: [embeddings, embeddings], digest: digest(1) }],
    false,
  );
  t.same(
    prompt.map(({ kind, tokens: { length } }) => [kind, length]),
    [
      ['image', 3],
      ['image', 3],
      ['tokens', 1],
    ],
  );
  t.same(placed, [
    { image: 0, part: 0 },
    { image: 0, part: 1 },
  ]);
  const [first, second] = prompt;
  const digests = [first, second].map(
    (segment) => segment?.kind === 'image' && Buffer.from(segment.digest).toString('hex'),
  );
  t.not(digests[0], digests[1], 'its parts differ');
});

t.test('ids are above every vocabulary, equal for equal images, and different for others', async (t) => {
  const ids = (byte: number): number[] => {
    const { prompt } = placeImages([tokens(1), tokens(2)], [{ parts: [embeddings], digest: digest(byte) }], false);
    return [...(prompt[1]?.tokens ?? [])];
  };
  t.same(ids(1), ids(1));
  t.notSame(ids(1), ids(2));
  t.ok(ids(1).every((id) => id >= IMAGE_IDS && id < 2 ** 32));
});
