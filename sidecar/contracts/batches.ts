/** The body of POST /batches, and the lines of its input file. */
import { BATCH_LINE, BATCH_REQUEST, type BatchEndpoint } from './batch-schemas.js';
import { placeOf, refuseAt, refuseJson, type Parsed } from './body-refusals.js';
import { membersOf, readJson, rootOf } from './json.js';
import { compile } from './validator.js';
import { BATCH_LINE_CODE, BATCHES_CODE } from './written-code.js';

/** The longest body of POST /batches, bytes. */
export const BATCH_REQUEST_BYTES = 64 * 1024;

export interface BatchRequest {
  readonly inputFile: string;
  readonly endpoint: BatchEndpoint;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Of the answers' files, s; absent: none is chosen. */
  readonly outputLifeS?: number;
}

interface RequestBody {
  readonly input_file_id: string;
  readonly endpoint: BatchEndpoint;
  readonly metadata?: Readonly<Record<string, string>> | null;
  readonly output_expires_after?: { readonly seconds: number };
}

const checkRequest = compile<RequestBody>(BATCH_REQUEST, { written: BATCHES_CODE });
const checkLine = compile<LineBody>(BATCH_LINE, { written: BATCH_LINE_CODE });
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

/** A line of an input file as its schema has it. */
interface LineBody {
  readonly custom_id: string;
  readonly url: BatchEndpoint;
  readonly body: { readonly model?: unknown };
}

export interface BatchLine {
  readonly customId: string;
  readonly url: BatchEndpoint;
  /** Empty: the body names none. */
  readonly model: string;
  /** As it is in the line. */
  readonly body: Uint8Array;
}

/** Parses and checks a line, but for what is in its body. */
export function parseBatchLine(bytes: Uint8Array): Parsed<BatchLine> {
  const read = readJson(bytes, { replaceSurrogates: true });
  if (!read.ok) return refuseJson(read, BATCH_LINE);
  const checked = checkLine(read.value);
  if (!checked.ok) return refuseAt(placeOf(checked.segments, NO_MAPS), checked.message);
  const { custom_id: customId, url, body } = checked.value;
  const member = membersOf(read.text, rootOf(read.text)).find(({ name }) => name === 'body');
  const text = member === undefined ? '' : read.text.slice(member.from, member.to);
  const model = typeof body.model === 'string' ? body.model : '';
  return { kind: 'ok', request: { customId, url, model, body: Buffer.from(text) } };
}
