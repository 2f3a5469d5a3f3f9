/** Forms with one file (multipart/form-data), whose file is passed on as it arrives. The only importer of the multipart parser. */
import { once } from 'node:events';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { BusboyInstance } from '@fastify/busboy';
import type { BodyEnd } from './body.js';
import type { Exchange } from './exchange.js';

/** Bytes of the file that are passed on at a time. */
const PIECE_BYTES = 1024 * 1024;

/** What a form may have besides its file, and the bytes of that: names, values, boundaries. */
const MOST_FIELDS = 16;
const FIELD_BYTES = 1024;
const NAME_BYTES = 200;
const ENVELOPE_BYTES = 64 * 1024;

export interface FileTaker<Refusal> {
  /** The next piece, at most a mebibyte, which is valid during the call. Returns why no more is wanted, or undefined. */
  append(piece: Uint8Array): Refusal | undefined;
  /** Set while what was taken becomes durable: until it settles no more is asked of the sender. */
  readonly pending: Promise<unknown> | undefined;
}

type Sender = Pick<Exchange, 'head' | 'receive'>;

export type Form<Refusal> =
  | { readonly kind: 'form'; readonly fields: ReadonlyMap<string, string>; readonly filename: string | undefined }
  /** It is no form, or its file is not in the field `file`. */
  | { readonly kind: 'malformed' }
  | { readonly kind: 'stopped'; readonly refusal: Refusal }
  | BodyEnd;

/**
 * Reads a form, whose file goes to `taker` in the turn of the event loop in which it arrives. `mostBytes`: of the file. Rejects with what
 * `append` throws. Once it has settled, no call of `append` follows.
 */
export async function readForm<Refusal>(
  from: Sender,
  mostBytes: number,
  taker: FileTaker<Refusal>,
): Promise<Form<Refusal>> {
  // The memory of what was received, which no one else uses: its content is overwritten once it was passed on.
  const own = new WeakSet<ArrayBufferLike>();
  const reading = await openForm(from.head.header('content-type') ?? '', mostBytes, own, taker);
  if (reading === undefined) return { kind: 'malformed' };
  const { busboy, result, isOver, stop } = reading;
  let last: Uint8Array | undefined;
  try {
    while (!isOver()) {
      const received = await from.receive(mostBytes + ENVELOPE_BYTES, taker.pending);
      if (received instanceof Uint8Array) {
        last = received;
        own.add(received.buffer);
        // An error, after which there is no more room, settles it too.
        if (!busboy.write(received)) await Promise.race([once(busboy, 'drain'), result]).catch(() => undefined);
      } else if (received.kind === 'complete') break;
      else {
        busboy.destroy();
        return received;
      }
    }
    busboy.end();
    return await result;
  } finally {
    await stop();
    last?.fill(0);
  }
}

async function openForm<Refusal>(
  type: string,
  mostBytes: number,
  own: WeakSet<ArrayBufferLike>,
  taker: FileTaker<Refusal>,
) {
  if (!/^multipart\/form-data\s*;/i.test(type)) return undefined;
  // Most sidecars take no forms.
  const { Busboy } = await import('@fastify/busboy');
  let busboy: BusboyInstance;
  try {
    busboy = new Busboy({
      headers: { 'content-type': type },
      limits: {
        fields: MOST_FIELDS,
        files: 1,
        parts: MOST_FIELDS + 1,
        fieldNameSize: NAME_BYTES,
        fieldSize: FIELD_BYTES,
        fileSize: mostBytes,
        headerPairs: MOST_FIELDS,
      },
    });
  } catch {
    return undefined;
  }
  const fields = new Map<string, string>();
  let filename: string | undefined;
  let isMalformed = false;
  let over = false;
  let stop = (): Promise<unknown> => Promise.resolve();
  const result = new Promise<Form<Refusal>>((resolve, reject) => {
    let file: Promise<Form<Refusal> | undefined> = Promise.resolve(undefined);
    const end = (form: Form<Refusal>): void => {
      over = true;
      resolve(form);
    };
    const fail = (fault: unknown): void => {
      over = true;
      reject(fault instanceof Error ? fault : new Error(String(fault)));
    };
    busboy.on('field', (name, value, isNameCut, isValueCut) => {
      if (isNameCut || isValueCut || fields.has(name)) isMalformed = true;
      else fields.set(name, value);
    });
    busboy.on('file', (name, stream, given) => {
      isMalformed ||= name !== 'file';
      filename = given;
      file = passOn(stream, own, taker).then((early) => {
        if (early) end(early);
        return early;
      });
      file.catch(fail);
      // Nothing more is passed on. It resolves once what is being passed on has been.
      stop = () => {
        stream.destroy();
        return Promise.allSettled([file]);
      };
    });
    for (const limit of ['partsLimit', 'filesLimit', 'fieldsLimit'] as const)
      busboy.on(limit, () => {
        isMalformed = true;
      });
    busboy.on('error', () => end({ kind: 'malformed' }));
    busboy.on('finish', () => {
      file.then(
        (early) => end(early ?? (isMalformed ? { kind: 'malformed' } : { kind: 'form', fields, filename })),
        fail,
      );
    });
  });
  // Of a caller that disconnects it is never read.
  result.catch(() => undefined);
  return { busboy, result, isOver: () => over, stop: () => stop() };
}

/** Returns how the form ends if not all of the file was passed on. */
async function passOn<Refusal>(
  stream: NodeJS.ReadableStream & { truncated?: boolean },
  own: WeakSet<ArrayBufferLike>,
  taker: FileTaker<Refusal>,
): Promise<Form<Refusal> | undefined> {
  const piece = Buffer.allocUnsafeSlow(PIECE_BYTES);
  let bytes = 0;
  let stopped: Form<Refusal> | undefined;
  const pass = (): void => {
    const refusal = taker.append(piece.subarray(0, bytes));
    bytes = 0;
    if (refusal === undefined) return;
    stopped = { kind: 'stopped', refusal };
    throw new Error('no more is wanted');
  };
  // In place of reading the stream, which copies what waits in it into one more buffer.
  const copy = new Writable({
    write(chunk: Buffer, _encoding, done) {
      try {
        for (let rest = chunk; rest.length > 0;) {
          const copied = rest.copy(piece, bytes);
          // The parser has constants of its own.
          if (own.has(rest.buffer)) rest.fill(0, 0, copied);
          bytes += copied;
          rest = rest.subarray(copied);
          if (bytes === PIECE_BYTES) pass();
        }
        done();
      } catch (fault) {
        done(fault as Error);
      }
    },
  });
  try {
    await pipeline(stream, copy);
    if (stream.truncated === true) return { kind: 'too-large' };
    if (bytes > 0) pass();
  } catch (fault) {
    if (!stopped) throw fault;
  } finally {
    piece.fill(0);
  }
  return stopped;
}
