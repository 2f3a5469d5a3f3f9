/**
 * The part of protobuf’s wire format that is needed to read what an exporter sends, written independently of the
 * exporter’s own code.
 */

/** The fields of one message, in the order of arrival, by number. */
export type Fields = ReadonlyMap<number, readonly Field[]>;

/** Varints and fixed widths are numbers of their bits; all others are bytes. */
export type Field = bigint | Buffer;

/** Throws if the bytes are no message. */
export function fieldsOf(bytes: Buffer): Fields {
  const fields = new Map<number, Field[]>();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new Error('a varint without an end');
  };
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new Error('a field beyond the end');
    at += length;
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const key = Number(varint());
    const wire = key & 7;
    let value: Field;
    if (wire === 0) value = varint();
    else if (wire === 1) value = take(8).readBigUInt64LE();
    else if (wire === 2) value = take(Number(varint()));
    else if (wire === 5) value = BigInt(take(4).readUInt32LE());
    else throw new Error(`wire type ${wire}`);
    fields.set(key >> 3, [...(fields.get(key >> 3) ?? []), value]);
  }
  return fields;
}

/** Messages of a repeated field. */
export function messages(fields: Fields, number: number): Fields[] {
  return (fields.get(number) ?? []).map((field) => fieldsOf(bytesOf(field)));
}

/** The message of a field; empty if absent. */
export function message(fields: Fields, number: number): Fields {
  return messages(fields, number)[0] ?? new Map();
}

export function text(fields: Fields, number: number): string {
  return bytes(fields, number).toString('utf8');
}

export function bytes(fields: Fields, number: number): Buffer {
  const field = fields.get(number)?.at(-1);
  return field === undefined ? Buffer.alloc(0) : bytesOf(field);
}

/** An integer, 0 if absent. */
export function integer(fields: Fields, number: number): bigint {
  const field = fields.get(number)?.at(-1) ?? 0n;
  if (typeof field !== 'bigint') throw new Error(`field ${number} is no number`);
  return field;
}

/** A fixed64 field as the double that its bits are. */
export function double(fields: Fields, number: number): number {
  const eight = Buffer.alloc(8);
  eight.writeBigUInt64LE(integer(fields, number));
  return eight.readDoubleLE();
}

/** A packed field of eight bytes each. */
export function packed<T>(fields: Fields, number: number, read: (bytes: Buffer, at: number) => T): T[] {
  const all = Buffer.concat((fields.get(number) ?? []).map(bytesOf));
  return Array.from({ length: all.length / 8 }, (_, i) => read(all, 8 * i));
}

function bytesOf(field: Field): Buffer {
  if (typeof field === 'bigint') throw new Error('a number, not bytes');
  return field;
}
