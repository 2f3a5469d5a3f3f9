import { createHash } from 'node:crypto';
import t from 'tap';
import type { ContentPart, Message } from '../../../sidecar/contracts/requests.js';
import { imageSize, readImages as readOf } from '../../../sidecar/prompts/images.js';
import { dataUrl, jpeg, png } from '../../support/images.js';
import { RandomWords } from '../../../bench/models/random-weights.js';

type Bounds = Parameters<typeof readOf>[1];
const readImages = (messages: readonly Message[], bounds: Bounds, place?: () => string): ReturnType<typeof readOf> =>
  readOf({ messages }, bounds, place);

const BOUNDS = { maxImages: 2, maxPixels: 10_000 };
const image = (url: string, detail?: 'auto' | 'low' | 'high'): ContentPart => ({
  type: 'image_url',
  image_url: { url, ...(detail && { detail }) },
});
const text: ContentPart = { type: 'text', text: 'What is this?' };
const user = (...content: ContentPart[]): Message => ({ role: 'user', content });
const PARAM = 'messages[1].content[1].image_url';

/** The result for one image, the second part of the second message. */
function refused(url: string): string {
  const read = readImages([{ role: 'system', content: 'x' }, user(text, image(url))], BOUNDS);
  if (read.kind !== 'refused') return read.kind;
  t.equal(read.error.param, PARAM);
  t.equal(read.error.status, 400);
  t.ok(read.error.message.startsWith(`${PARAM} `));
  return read.error.message.slice(PARAM.length + 1);
}

t.test('the files of all messages, in order', async (t) => {
  const [first, second] = [png(10, 20), jpeg(30, 40, () => 5)];
  const read = readImages(
    [
      user(image(dataUrl(first), 'low'), text),
      { role: 'assistant', content: 'No.' },
      user(image(dataUrl(second, 'image/jpeg'))),
    ],
    BOUNDS,
  );
  t.match(read, {
    kind: 'images',
    images: [
      { bytes: first, size: { width: 10, height: 20 }, low: true, sha256: createHash('sha256').update(first).digest() },
      {
        bytes: second,
        size: { width: 30, height: 40 },
        low: false,
        sha256: createHash('sha256').update(second).digest(),
      },
    ],
  });
});

t.test('all forms of data URLs', async (t) => {
  const file = png(2, 2);
  const base64 = file.toString('base64');
  for (const url of [
    `DATA:IMAGE/PNG;BASE64,${base64}`,
    `data:image/png;name=a.png;base64,${base64}`,
    `data:image/jpg;base64,${base64}`,
    `data:image/png;base64,${base64.replaceAll('+', '%2B').replaceAll('/', '%2f').replaceAll('=', '%3D')}`,
  ])
    t.match(readImages([user(image(url))], BOUNDS), { kind: 'images', images: [{ bytes: file }] }, url.slice(0, 30));
});

t.test('refused images, each with its reason', async (t) => {
  t.match(refused('https://example.com/a.png'), /^is an https URL, and no URL is fetched/);
  for (const url of [
    'data:,hello',
    'data:image/gif;base64,AAAA',
    'data:image/svg+xml;base64,AAAA',
    'data:image/png,AAAA',
  ])
    t.match(refused(url), /^must be a PNG or JPEG as a base64 data URL/, url);
  for (const url of ['data:image/png;base64,AA%zz', 'data:image/png;base64,A%3DAA', 'data:image/png;base64,'])
    t.match(refused(url), /^must be a PNG or JPEG as a base64 data URL/, url);
  t.match(refused(dataUrl(Buffer.from('GIF89a'))), /its data is neither, or damaged/);
  t.match(refused(dataUrl(png(10, 20).subarray(0, 20))), /its data is neither, or damaged/);
  t.match(refused(dataUrl(png(101, 100))), /^has 101 x 100 pixels, more than the 10000 /);
  t.match(refused(dataUrl(png(201, 1))), /200 times the shorter side/);
  t.equal(refused(dataUrl(png(200, 1))), 'images');
});

t.test('as many as the model accepts', async (t) => {
  const one = image(dataUrl(png(1, 1)));
  t.match(readImages([user(one, one)], BOUNDS), { kind: 'images' });
  const more = readImages([user(...Array.from({ length: 4096 }, () => one))], BOUNDS, () => 'input');
  t.match(more, { kind: 'refused', error: { param: 'input', message: /one image more than the 2 / } });
});

t.test(
  'images of results: the last ones, in the order of their calls, and a line of text for each of the others',
  async (t) => {
    const [first, second, third] = [png(1, 1), png(2, 2), png(3, 3)].map((file) => image(dataUrl(file)));
    const call = (id: string): object => ({ id, type: 'function', function: { name: 'look', arguments: '{}' } });
    const result = (id: string, ...content: (ContentPart | undefined)[]): Message =>
      ({ role: 'tool', content, tool_call_id: id }) as Message;
    const calls = { role: 'assistant', content: null, tool_calls: [call('a'), call('b')] } as Message;
    const messages = [user(text), calls, result('b', third), result('a', text, first, second)];
    const left = (why: string): string => `[An image is left out here: ${why}]`;
    const read = readOf({ messages }, BOUNDS);
    if (read.kind === 'refused') throw new Error('refused');
    t.strictSame(
      read.images.map(({ size }) => size.width),
      [1, 2],
    );
    t.equal(read.conversation.messages[2]?.content, left('this model takes 2, and later ones are shown.'));
    const all = readOf({ messages }, { ...BOUNDS, maxImages: 3 });
    t.strictSame(
      all.kind === 'images' && all.images.map(({ size }) => size.width),
      [1, 2, 3],
      'as the prompt has them',
    );
    const blind = readOf({ messages }, undefined);
    t.match(blind, {
      images: [],
      conversation: { messages: { 2: { content: left('this model does not see images.') } } },
    });
    const unreadable = [
      calls,
      result('a', image('https://example.com/a.png')),
      result('b', image('data:image/gif;base64,AA')),
    ];
    const line = left('it is no PNG or JPEG in a data URL, or it is too large for this model.');
    t.match(readOf({ messages: unreadable }, BOUNDS), {
      images: [],
      conversation: { messages: [calls, { content: line }, { content: line }] },
    });
  },
);

t.test('images of a result of no call, and beside words of ours, are those of the prompt', async (t) => {
  const words = 'The following is a system message:';
  const of = (width: number): ContentPart => image(dataUrl(png(width, 1)));
  const stray: Message = { role: 'tool', content: [text, of(2)], tool_call_id: 'none' };
  const read = readOf({ messages: [user({ type: 'text', text: words }, of(1)), stray] }, BOUNDS);
  t.strictSame(read.kind === 'images' && read.images.map(({ size }) => size.width), [1, 2]);
});

const grey = (): number => 0;

t.test('the size of a PNG and of a JPEG', async (t) => {
  for (const [width, height] of [
    [1, 1],
    [7, 300],
    [640, 48],
  ] as const) {
    t.same(imageSize(png(width, height)), { width, height });
    t.same(imageSize(jpeg(width, height, grey)), { width, height });
  }
  const view = new Uint8Array(Buffer.concat([Buffer.from('before'), png(3, 4)])).subarray(6);
  t.same(imageSize(view), { width: 3, height: 4 }, 'wherever it begins in its memory');
});

t.test('a JPEG with segments and stray bytes before its frame', async (t) => {
  const plain = jpeg(33, 17, grey);
  const comment = Buffer.from([0xff, 0xfe, 0, 6, 0xff, 0xc0, 1, 2]);
  const spaced = Buffer.concat([plain.subarray(0, 2), comment, Buffer.from([0xff, 0xff]), plain.subarray(2)]);
  t.same(imageSize(spaced), { width: 33, height: 17 }, 'a frame within a comment does not count');
  const progressive = Buffer.from(plain);
  progressive[plain.indexOf(Buffer.from([0xff, 0xc0])) + 1] = 0xc2;
  t.same(imageSize(progressive), { width: 33, height: 17 });
  const lossless = Buffer.from(plain);
  lossless[plain.indexOf(Buffer.from([0xff, 0xc0])) + 1] = 0xc3;
  t.equal(imageSize(lossless), undefined, 'a frame type that the decoder does not support');
  t.equal(imageSize(plain.subarray(0, plain.length - 1)), undefined, 'cut off');
  t.same(
    imageSize(Buffer.concat([plain, Buffer.from('more')])),
    { width: 33, height: 17 },
    'with more bytes after its end',
  );
});

t.test('a JPEG of so many scans that its decoder would walk over its blocks for minutes', async (t) => {
  const plain = jpeg(33, 17, grey);
  const scans = (count: number): Buffer => {
    const further = Buffer.alloc(4 * (count - 1), Buffer.from([0xff, 0xda, 0, 2]));
    return Buffer.concat([plain.subarray(0, -2), further, plain.subarray(-2)]);
  };
  t.same(imageSize(scans(100)), { width: 33, height: 17 });
  t.equal(imageSize(scans(101)), undefined);
  const behind = Buffer.concat([plain, Buffer.alloc(1000, Buffer.from([0xff, 0xda, 0, 2])), plain.subarray(-2)]);
  t.same(imageSize(behind), { width: 33, height: 17 }, 'what follows the image, such as a film, does not count');
  const comment = Buffer.from([0xff, 0xfe, 0, 4, 0xff, 0xd9]);
  const hidden = Buffer.concat([plain.subarray(0, -2), comment, scans(101).subarray(plain.length - 2)]);
  t.equal(imageSize(hidden), undefined, 'an end within a comment is none');
});

t.test('neither a PNG nor a JPEG', async (t) => {
  const tga = Buffer.from([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0x0f, 0xa0, 0x0f, 24, 0]);
  const others = [
    Buffer.alloc(0),
    Buffer.alloc(1),
    tga,
    Buffer.from('GIF89a\x01\x00\x01\x00'),
    Buffer.from('BM\x00\x00\x00\x00'),
    Buffer.from('RIFF\x00\x00\x00\x00WEBPVP8 '),
    Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'),
    Buffer.from([0xff, 0xd8, 0xff]),
  ];
  for (const other of others) t.equal(imageSize(other), undefined, other.toString('latin1', 0, 6));
  t.equal(imageSize(png(0, 5)), undefined, 'no width');
  t.equal(imageSize(png(5, 0)), undefined, 'no height');
  const first = Buffer.from(png(5, 5));
  first.write('CgBI', 12, 'latin1');
  t.equal(imageSize(first), undefined, 'another chunk before the head');
});

t.test('truncated and changed files have a size or none, and nothing throws', async (t) => {
  const random = new RandomWords(11);
  const below = (most: number): number => (random.next() >>> 0) % most;
  const files = [png(9, 9), jpeg(40, 24, grey)];
  let sizes = 0;
  for (let round = 0; round < 4000; round++) {
    const file = Buffer.from(files[round % files.length] ?? []);
    for (let change = below(4); change >= 0; change--) file[below(file.length)] = below(256);
    const size = imageSize(file.subarray(0, below(2) === 0 ? below(file.length) : file.length));
    if (size === undefined) continue;
    sizes += 1;
    if (!(size.width > 0 && size.height > 0)) t.fail(`${size.width} x ${size.height}`);
  }
  t.ok(sizes > 500 && sizes < 3500, `${sizes} of 4000`);
});
