/** The body of POST /batches, and the lines of its input file. */
import { BATCH_LINE, BATCH_REQUEST, type BatchEndpoint } from './batch-schemas.js';
import { placeOf, refuseAt, refuseJson, type Parsed } from './body-refusals.js';
import { readJson, type Span } from './json.js';
import { compile, type ValueOf } from './validator.js';

/** The longest body of POST /batches, bytes. */
export const BATCH_REQUEST_BYTES = 64 * 1024;

export interface BatchRequest {
  readonly inputFile: string;
  readonly endpoint: BatchEndpoint;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Of the answers' files, s; absent: none is chosen. */
  readonly outputLifeS?: number;
}

const checkRequest = compile<ValueOf<typeof BATCH_REQUEST>>(BATCH_REQUEST, { written: 'batches' });
const checkLine = compile<ValueOf<typeof BATCH_LINE>>(BATCH_LINE, { written: 'batch-line' });
const NO_MAPS: ReadonlySet<string> = new Set(['metadata']);

/** Parses and checks the body of POST /batches. */
export function parseBatchRequest(bytes: Uint8Array): Parsed<BatchRequest> {
  const read = readJson(bytes);
  if (!read.ok) return refuseJson(read, BATCH_REQUEST);
  const checked = checkRequest(read.value);
  if (!checked.ok) return refuseAt(placeOf(checked.segments, NO_MAPS), checked.message);
  const { input_file_id: inputFile, endpoint, metadata = null, output_expires_after: after } = checked.value;
  return { kind: 'ok', request: { inputFile, endpoint, metadata, ...(after && { outputLifeS: after.seconds }) } };
}

export interface BatchLine {
  readonly customId: string;
  readonly url: BatchEndpoint;
  /** Empty: the body names none. */
  readonly model: string;
  /** As it is in the line. */
  readonly body: Uint8Array;
}

/**
 * Parses and checks a line, but for its body, which stays bytes: those can be overwritten, and to parse the longest ones takes too long for
 * the event loop.
 */
export function parseBatchLine(bytes: Uint8Array): Parsed<BatchLine> {
  const line = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const { from, to } = placeIn(line, 'body') ?? { from: 0, to: 0 };
  const others = to === 0 ? line : Buffer.concat([line.subarray(0, from), EMPTY_OBJECT, line.subarray(to)]);
  const read = readJson(others, { replaceSurrogates: true });
  if (others !== line) others.fill(0);
  if (!read.ok) return refuseJson(read, BATCH_LINE);
  const checked = checkLine(read.value);
  if (!checked.ok) return refuseAt(placeOf(checked.segments, NO_MAPS), checked.message);
  const { custom_id: customId, url } = checked.value;
  const body = Buffer.from(line.subarray(from, to));
  const place = placeIn(body, 'model');
  const model = place && readJson(body.subarray(place.from, place.to));
  return {
    kind: 'ok',
    request: { customId, url, model: model?.ok && typeof model.value === 'string' ? model.value : '', body },
  };
}

const EMPTY_OBJECT = Buffer.from('{}');
const [QUOTE, COMMA, COLON, BACKSLASH] = [0x22, 0x2c, 0x3a, 0x5c];

/** Where the value of the first member of this name is in an object's JSON, with the space around it. Syntax is not checked. */
function placeIn(json: Buffer, name: string): Span | undefined {
  let depth = 0;
  let isNamed = false;
  let from = 0;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) {
      const end = endOfString(json, at);
      if (depth === 1 && from === 0) {
        const read = readJson(json.subarray(at, end));
        isNamed = read.ok && read.value === name;
      }
      at = end - 1;
    } else if (byte === COLON && depth === 1) from = at + 1;
    else if (byte === 0x7b || byte === 0x5b) depth += 1;
    else if (byte === 0x7d || byte === 0x5d) depth -= 1;
    if (from === 0 || !(depth === 0 || (depth === 1 && byte === COMMA))) continue;
    if (isNamed) return { from, to: at };
    from = 0;
  }
  return undefined;
}

/** Index after the closing quote of the string that opens at `at`. */
function endOfString(json: Buffer, at: number): number {
  let end = at + 1;
  while (end < json.length && json[end] !== QUOTE) end += json[end] === BACKSLASH ? 2 : 1;
  return end + 1;
}
