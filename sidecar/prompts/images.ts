/**
 * The images of a chat request: files from data URLs, within the model's bounds. Nothing is decoded: the size is read from the head of
 * the PNG or JPEG, and it decides whether the image may be decoded. Linear in the file, whatever its content.
 *
 * An image of a user's message that cannot be shown refuses the request. One in a tool's result becomes a line of text: an agent sends
 * its history again with each request, so that a refusal would end its session.
 */
import { createHash } from 'node:crypto';
import { regularHistory } from '../../engine/prompt/history.js';
import type { ContentPart, Conversation, Message } from '../contracts/requests.js';
import { imageError } from '../domain/errors.js';
import type { ImageBounds } from './messages.js';
import { refused, type Refusal, type RequestImage } from './prompt-maker.js';

export type ReadImages =
  | {
      readonly kind: 'images';
      /** In the order in which the prompt has them. */
      readonly images: readonly RequestImage[];
      /** With text in place of the images of results that are not shown. */
      readonly conversation: Conversation;
    }
  | Refusal;

/** No side is longer, px: libmtmd ends its process where one has more than 46,000. */
const MAX_SIDE = 32_768;
/** The longer side over the shorter one: projectors with tiles make absurd numbers of them of strips. */
const MAX_ASPECT = 200;

/**
 * The images of all users' messages and of tools' results. `bounds`: absent, the model sees none, and no user's message has one. `place`: what
 * a refusal names as the parameter of one. Of results the last images are shown, as many as the model takes besides the users'.
 */
export function readImages(
  conversation: Conversation,
  bounds: ImageBounds | undefined,
  place: (message: number, part: number) => string = (message, part) =>
    `messages[${message}].content[${part}].image_url`,
): ReadImages {
  const { messages } = conversation;
  const files = new Map<ContentPart, RequestImage>();
  let count = 0;
  for (const [i, message] of messages.entries()) {
    if (!bounds || message.role !== 'user' || typeof message.content === 'string') continue;
    for (const [j, part] of message.content.entries()) {
      if (part.type !== 'image_url') continue;
      const param = place(i, j);
      if (count === bounds.maxImages) {
        return refused(
          imageError(`${param} is one image more than the ${bounds.maxImages} that this model takes`, param),
        );
      }
      const read = readImage(part, bounds);
      if (typeof read === 'string') return refused(imageError(`${param} ${read}`, param));
      files.set(part, read);
      count += 1;
    }
  }
  if (!messages.some(hasResultImage)) return { kind: 'images', images: [...files.values()], conversation };
  const shown = { ...conversation, messages: [...messages] };
  for (let at = messages.length - 1; at >= 0; at--) {
    const message = messages[at];
    if (message?.role === 'tool') shown.messages[at] = withReadable(message, files, bounds);
  }
  const paired = regularHistory(shown);
  const inPrompt = paired.kind === 'ok' ? paired.conversation.messages : [];
  const parts = inPrompt.flatMap(({ content }) => (typeof content === 'object' && content ? content : []));
  return { kind: 'images', images: parts.flatMap((part) => files.get(part as ContentPart) ?? []), conversation: shown };
}

type Result = Extract<Message, { readonly role: 'tool' }>;

function hasResultImage({ role, content }: Message): boolean {
  return role === 'tool' && typeof content !== 'string' && content.some(({ type }) => type === 'image_url');
}

const LEFT_OUT = '[An image is left out here: ';

/** A result whose images are in `files`, the last ones first, or are text. */
function withReadable(result: Result, files: Map<ContentPart, RequestImage>, bounds: ImageBounds | undefined): Result {
  const { content } = result;
  if (typeof content === 'string') return result;
  const read = content.map((part) => part);
  for (let at = content.length - 1; at >= 0; at--) {
    const part = content[at];
    if (part?.type !== 'image_url') continue;
    const image = bounds && files.size < bounds.maxImages ? readImage(part, bounds) : undefined;
    if (typeof image === 'object') files.set(part, image);
    else read[at] = { type: 'text', text: `${LEFT_OUT}${whyLeftOut(image, bounds)}]` };
  }
  if (read.some(({ type }) => type === 'image_url')) return { ...result, content: read };
  return { ...result, content: read.map((part) => (part.type === 'text' ? part.text : '')).join('\n') };
}

/** `unreadable`: what is wrong with the image; undefined if nothing is. */
function whyLeftOut(unreadable: string | undefined, bounds: ImageBounds | undefined): string {
  if (!bounds) return 'this model does not see images.';
  if (unreadable === undefined) return `this model takes ${bounds.maxImages}, and later ones are shown.`;
  return 'it is no PNG or JPEG in a data URL, or it is too large for this model.';
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

/** The data of a base64 data URL of one of the two types, which the contract has checked; undefined if it is none. */
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

/** The size by the file's head, px. Undefined if it is neither a PNG nor a JPEG, or its head is damaged. */
export function imageSize(file: Uint8Array): RequestImage['size'] | undefined {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const size = isPng(view) ? pngSize(view) : isJpeg(view) ? jpegSize(file, view) : undefined;
  return size !== undefined && size.width > 0 && size.height > 0 ? size : undefined;
}

const PNG_SIGNATURE = [0x89504e47, 0x0d0a1a0a] as const;
const IHDR = 0x49484452;
/** Signature, then the first chunk's length, name, 13 bytes and checksum. */
const PNG_HEAD = 33;

function isPng(view: DataView): boolean {
  return (
    view.byteLength >= PNG_HEAD &&
    view.getUint32(0) === PNG_SIGNATURE[0] &&
    view.getUint32(4) === PNG_SIGNATURE[1] &&
    view.getUint32(8) === 13 &&
    view.getUint32(12) === IHDR
  );
}

function pngSize(view: DataView): RequestImage['size'] {
  return { width: view.getUint32(16), height: view.getUint32(20) };
}

/** The only markers whose frames the decoder reads: baseline, extended and progressive. */
const FRAMES: ReadonlySet<number> = new Set([0xc0, 0xc1, 0xc2]);
/** Markers that end the head without a frame: an end, a scan, and frames that are not decoded. */
const ENDS: ReadonlySet<number> = new Set([
  0xd8, 0xd9, 0xda, 0xc3, 0xc5, 0xc6, 0xc7, 0xc9, 0xca, 0xcb, 0xcd, 0xce, 0xcf,
]);

function isJpeg(view: DataView): boolean {
  return view.byteLength >= 4 && view.getUint16(0) === 0xffd8 && view.getUint8(2) === 0xff;
}

const JPEG_END = Uint8Array.of(0xff, 0xd9);

const [END, SCAN, FIRST_RESTART, LAST_RESTART] = [0xd9, 0xda, 0xd0, 0xd7] as const;

/** A scan of some 35 bytes makes a decoder walk over all blocks of a progressive image. Encoders write 10 or so. */
const MAX_SCANS = 100;

/** Scans from the frame at `from` to the image's end, behind which anything may follow; counted up to one more than there may be. */
function scansFrom(file: Uint8Array, from: number): number {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  let scans = 0;
  let at = from;
  while (at >= 0 && at + 4 <= bytes.length && scans <= MAX_SCANS) {
    const marker = bytes.readUInt8(at + 1);
    const isData = marker === 0 || marker === 0xff || (marker >= FIRST_RESTART && marker <= LAST_RESTART);
    if (bytes.readUInt8(at) !== 0xff || isData) {
      at = bytes.indexOf(0xff, at + 1);
      continue;
    }
    if (marker === END) break;
    if (marker === SCAN) scans += 1;
    at += 2 + bytes.readUInt16BE(at + 2);
  }
  return scans;
}

/** Undefined also for a file that was cut off, whose decoder would fill in what is missing, and for one of too many scans. */
function jpegSize(file: Uint8Array, view: DataView): RequestImage['size'] | undefined {
  let at = 2;
  while (at + 4 <= view.byteLength) {
    // Some writers leave bytes between segments that belong to none.
    if (view.getUint8(at) !== 0xff || view.getUint8(at + 1) === 0 || view.getUint8(at + 1) === 0xff) {
      at += 1;
      continue;
    }
    const marker = view.getUint8(at + 1);
    if (ENDS.has(marker)) return undefined;
    const length = view.getUint16(at + 2);
    if (length < 2) return undefined;
    if (!FRAMES.has(marker)) {
      at += 2 + length;
      continue;
    }
    if (length < 8 || at + 9 > view.byteLength) return undefined;
    if (Buffer.from(file.buffer, file.byteOffset, file.byteLength).lastIndexOf(JPEG_END) < at) return undefined;
    if (scansFrom(file, at) > MAX_SCANS) return undefined;
    return { height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
  }
  return undefined;
}
