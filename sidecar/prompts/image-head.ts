/**
 * Reads the size of a PNG or JPEG from its head, without decoding the image: the size decides whether it may be
 * decoded. Linear in the file, whatever its content.
 */

/** Width and height, in pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Undefined: neither a PNG nor a JPEG, or its head is damaged. */
export function imageSize(file: Uint8Array): ImageSize | undefined {
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

function pngSize(view: DataView): ImageSize {
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
function jpegSize(file: Uint8Array, view: DataView): ImageSize | undefined {
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
