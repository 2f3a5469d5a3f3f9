/** Small PNG and JPEG files for tests, encoded here. */
import { crc32, deflateSync } from 'node:zlib';

/** RGB of a place, 0 to 255 each. */
export type Paint = (x: number, y: number) => readonly [number, number, number];

/** Stripes that differ by seed. */
export function stripes(seed: number): Paint {
  return (x, y) => [(x * 3 + seed * 40) & 255, (y * 5 + seed * 90) & 255, (x * y + seed * 7) & 255];
}

export function png(width: number, height: number, paint: Paint = stripes(1)): Buffer {
  const rows = Buffer.alloc(height * (1 + 3 * width));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) rows.set(paint(x, y), y * (1 + 3 * width) + 1 + 3 * x);
  }
  return pngOf(width, height, deflateSync(rows));
}

/** With these compressed rows, whatever they are. */
export function pngOf(width: number, height: number, compressed: Uint8Array): Buffer {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // Eight bits, RGB.
  head.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk('IHDR', head), chunk('IDAT', compressed), chunk('IEND', Buffer.alloc(0))]);
}

function chunk(name: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(name, 'latin1'), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
}

/** Codes of the usual table for the sizes of differences, as bits. */
const DC_CODES = [
  '00',
  '010',
  '011',
  '100',
  '101',
  '110',
  '1110',
  '11110',
  '111110',
  '1111110',
  '11111110',
  '111111110',
];
const DC_LENGTHS = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];

/**
 * A grey baseline JPEG whose blocks of 8 x 8 pixels each have one shade: `shade` of its column and row, -1024 to 1023.
 */
export function jpeg(width: number, height: number, shade: (column: number, row: number) => number): Buffer {
  let bits = '';
  let before = 0;
  for (let row = 0; row < Math.ceil(height / 8); row++) {
    for (let column = 0; column < Math.ceil(width / 8); column++) {
      const value = Math.round(shade(column, row));
      bits += difference(value - before);
      // No other coefficient: the one code of the second table.
      bits += '0';
      before = value;
    }
  }
  bits += '1'.repeat((8 - (bits.length % 8)) % 8);
  const data = (bits.match(/.{8}/g) ?? []).flatMap((byte) => {
    const value = Number.parseInt(byte, 2);
    return value === 0xff ? [0xff, 0] : [value];
  });
  return Buffer.from([
    ...[0xff, 0xd8],
    ...segment(0xdb, [0, ...new Array<number>(64).fill(8)]),
    ...segment(0xc0, [8, height >> 8, height & 255, width >> 8, width & 255, 1, 1, 0x11, 0]),
    ...segment(0xc4, [0, ...DC_LENGTHS, ...DC_CODES.keys()]),
    ...segment(0xc4, [0x10, 1, ...new Array<number>(15).fill(0), 0]),
    ...segment(0xda, [1, 1, 0, 0, 63, 0]),
    ...data,
    ...[0xff, 0xd9],
  ]);
}

function difference(value: number): string {
  const size = value === 0 ? 0 : Math.floor(Math.log2(Math.abs(value))) + 1;
  const code = DC_CODES[size] ?? '';
  if (size === 0) return code;
  return code + (value < 0 ? value + 2 ** size - 1 : value).toString(2).padStart(size, '0');
}

function segment(marker: number, data: readonly number[]): number[] {
  const length = data.length + 2;
  return [0xff, marker, length >> 8, length & 255, ...data];
}

export function dataUrl(file: Uint8Array, type = 'image/png'): string {
  return `data:${type};base64,${Buffer.from(file).toString('base64')}`;
}
