import { createHash } from 'node:crypto';
import t from 'tap';
import type { ContentPart, Message } from '../../../sidecar/contracts/requests.js';
import { readImages } from '../../../sidecar/prompts/images.js';
import { dataUrl, jpeg, png } from '../../support/images.js';

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
  t.same(read, {
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
  ]) {
    t.match(readImages([user(image(url))], BOUNDS), { kind: 'images', images: [{ bytes: file }] }, url.slice(0, 30));
  }
});

t.test('refused images, each with its reason', async (t) => {
  t.match(refused('https://example.com/a.png'), /^is an https URL, and no URL is fetched/);
  for (const url of [
    'data:,hello',
    'data:image/gif;base64,AAAA',
    'data:image/svg+xml;base64,AAAA',
    'data:image/png,AAAA',
  ]) {
    t.match(refused(url), /^must be a PNG or JPEG as a base64 data URL/, url);
  }
  for (const url of ['data:image/png;base64,AA%zz', 'data:image/png;base64,A%3DAA', 'data:image/png;base64,']) {
    t.match(refused(url), /^must be a PNG or JPEG as a base64 data URL/, url);
  }
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
