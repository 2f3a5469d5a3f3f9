import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import {
  crc32c,
  decodeAt,
  encode,
  encodeMark,
  MAX_JSON_BYTES,
  type Line,
} from '../../../sidecar/usage/spool-format.js';
import { usageRecord } from '../../support/usage-records.js';
import { anyText } from '../../support/texts.js';

/** Decodes one whole line, with or without its newline. */
function decode(bytes: Buffer): Line {
  const text = bytes.at(-1) === 0x0a ? bytes.subarray(0, -1) : bytes;
  const line = decodeAt(text, 0);
  return 'bytes' in line && line.bytes === text.length ? line : { kind: 'bad' };
}

t.test('the checksum is CRC-32C', async (t) => {
  // RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
  t.equal(crc32c(Buffer.alloc(32)), 0x8a9136aa);
  t.equal(crc32c(Buffer.alloc(32, 0xff)), 0x62a8ab43);
  t.equal(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i)), 0x46dd794e);
  t.equal(crc32c(Buffer.from('123456789')), 0xe3069283);
  t.equal(crc32c(Buffer.alloc(0)), 0);
});

t.test('a record is one line: length, checksum, JSON', async (t) => {
  const record = usageRecord('a', 'open');
  const text = encode(record).toString();
  t.match(text, /^\d+ [0-9a-f]{8} \{.*\}\n$/);
  const [length = '', crc = '', ...json] = text.trimEnd().split(' ');
  t.equal(Number(length), Buffer.byteLength(json.join(' ')));
  t.equal(Number.parseInt(crc, 16), crc32c(Buffer.from(json.join(' '))));
  t.strictSame(decode(encode(record)), { kind: 'record', record, bytes: text.length - 1 });
});

t.test('written lines are read again, whatever their texts contain', async () => {
  await fc.assert(
    fc.asyncProperty(anyText({ maxLength: 40 }), fc.maxSafeNat(), async (name, tokens) => {
      const record = usageRecord(`i${name}`, 'close', { account: name, promptTokens: tokens });
      const line = encode(record);
      const read = decode(line);
      assert.equal(line.indexOf(0x0a), line.length - 1, 'no newline within');
      assert.equal(read.kind, 'record');
      assert.equal(JSON.stringify(read.record), JSON.stringify(record));
    }),
  );
});

t.test('every changed byte is detected', async (t) => {
  const line = encode(usageRecord('a', 'close')).subarray(0, -1);
  const unseen: string[] = [];
  for (let i = 0; i < line.length; i++) {
    for (let value = 0; value < 256; value++) {
      if (value === line[i]) continue;
      const changed = Buffer.from(line);
      changed[i] = value;
      if (decode(changed).kind !== 'bad') unseen.push(`${i}: ${value}`);
    }
  }
  t.strictSame(unseen, []);
});

t.test('a line that is cut by the buffer’s end is incomplete, wherever it is cut', async (t) => {
  const line = encode(usageRecord('a', 'open'));
  for (let bytes = 0; bytes < line.length - 1; bytes++)
    t.equal(decodeAt(line.subarray(0, bytes), 0).kind, 'short', `${bytes} bytes`);
});

t.test('other ways to write the same line are invalid', async (t) => {
  const line = encode(usageRecord('a', 'open')).toString();
  const crc = line.slice(line.indexOf(' ') + 1).slice(0, 8);
  for (const other of [
    `0${line}`,
    ` ${line}`,
    `+${line}`,
    line.replace(' ', '  '),
    line.replace(crc, crc.toUpperCase()),
  ])
    if (other !== line) t.equal(decode(Buffer.from(other)).kind, 'bad', other.slice(0, 20));
  t.equal(decode(Buffer.from(`${MAX_JSON_BYTES + 1} 00000000 {`)).kind, 'bad', 'too long');
});

t.test('JSON that is no usage record is invalid, one of a newer sidecar is not', async (t) => {
  const record = usageRecord('a', 'close');
  for (const wrong of [
    { ...record, kind: 'other' },
    { ...record, id: '' },
    { ...record, promptTokens: -1 },
    { ...record, promptTokens: 1.5 },
    { ...record, at: 'yesterday' },
    { ...record, outcome: 'fine' },
    { ...record, estimated: false },
    { ...record, price: { version: '1', picodollars: '-1' } },
  ])
    t.equal(decode(encode(wrong as unknown as typeof record)).kind, 'bad', JSON.stringify(wrong));
  t.equal(decode(encode({ ...record, price: { version: '2026-10-03.4', picodollars: '42' } })).kind, 'record');
  t.equal(decode(encode({ ...record, newer: 1 } as typeof record)).kind, 'record');
});

t.test('marks are distinguished from records', async (t) => {
  const head = { kind: 'head', after: { segment: 1, offset: 7 } } as const;
  t.match(decode(encodeMark(head)), { kind: 'mark', mark: head });
  t.match(decode(encodeMark({ kind: 'head', after: null })), { kind: 'mark' });
  t.match(decode(encodeMark({ kind: 'end' })), { kind: 'mark', mark: { kind: 'end' } });
  t.match(decode(encodeMark({ kind: 'head', after: { segment: 0, offset: 7 } })), { kind: 'bad' });
});
