/** The images of a chat request: files from data URLs, within the model's bounds, before anything of them is decoded. */
import { createHash } from 'node:crypto';
import type { ContentPart, Message } from '../contracts/requests.js';
import { imageSize } from './image-head.js';
import type { ImageBounds } from './messages.js';
import type { Refusal, RequestImage } from './prompt-maker.js';
import { refusal } from './refusals.js';

export type ReadImages = { readonly kind: 'images'; readonly images: readonly RequestImage[] } | Refusal;

/** No side is longer, px: libmtmd ends its process where one has more than 46,000. */
const MAX_SIDE = 32_768;
/** The longer side over the shorter one: projectors with tiles make absurd numbers of them of strips. */
const MAX_ASPECT = 200;

/** The images of all users' messages, in order. `place`: what a refusal names as the parameter of one. */
export function readImages(
  messages: readonly Message[],
  bounds: ImageBounds,
  place: (message: number, part: number) => string = (message, part) =>
    `messages[${message}].content[${part}].image_url`,
): ReadImages {
  const images: RequestImage[] = [];
  for (const [i, message] of messages.entries()) {
    if (message.role !== 'user' || typeof message.content === 'string') continue;
    for (const [j, part] of message.content.entries()) {
      if (part.type !== 'image_url') continue;
      const param = place(i, j);
      if (images.length === bounds.maxImages) {
        return refusal(
          'bad_request',
          `${param} is one image more than the ${bounds.maxImages} that this model takes`,
          param,
        );
      }
      const read = readImage(part, bounds);
      if (typeof read === 'string') return refusal('bad_request', `${param} ${read}`, param);
      images.push(read);
    }
  }
  return { kind: 'images', images };
}

type ImagePart = Extract<ContentPart, { readonly type: 'image_url' }>;

/** A predicate, if it is refused. */
function readImage({ image_url: { url, detail } }: ImagePart, { maxPixels }: ImageBounds): RequestImage | string {
  if (!/^data:/i.test(url)) return 'is an https URL, and no URL is fetched: send the image itself, as a data URL';
  const bytes = dataOf(url);
  if (bytes === undefined) return 'must be a PNG or JPEG as a base64 data URL';
  const size = imageSize(bytes);
  if (size === undefined) return 'must be a PNG or JPEG: its data is neither, or damaged';
  const { width, height } = size;
  if (width * height > maxPixels)
    return `has ${width} x ${height} pixels, more than the ${maxPixels} that this model takes`;
  const [longer, shorter] = [Math.max(width, height), Math.min(width, height)];
  if (longer > MAX_SIDE || longer > MAX_ASPECT * shorter) {
    return `has ${width} x ${height} pixels; at most ${MAX_SIDE} a side are taken, and ${MAX_ASPECT} times the shorter side`;
  }
  return { bytes, size, low: detail === 'low', sha256: createHash('sha256').update(bytes).digest() };
}

const HEADER = /^data:image\/(?:png|jpe?g)(?:;[^,;]*)*;base64$/i;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** The data of a base64 data URL of one of the two types, which the contract has checked; undefined: it is none. */
function dataOf(url: string): Uint8Array | undefined {
  const comma = url.indexOf(',');
  if (!HEADER.test(url.slice(0, comma))) return undefined;
  const escaped = url.slice(comma + 1);
  const text = escaped.includes('%') ? unescaped(escaped) : escaped;
  if (text === undefined || !BASE64.test(text)) return undefined;
  return Buffer.from(text, 'base64');
}

function unescaped(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
