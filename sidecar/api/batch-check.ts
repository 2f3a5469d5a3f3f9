/** The lines of a batch's input, and their check before any of them runs: each by its route's contract, as a request is. */
import type { Caller } from '../access/identity.js';
import type { BatchProblem, BatchRecord } from '../batch/batch-store.js';
import type { FileStore } from '../batch/file-store.js';
import { DamagedPieces } from '../batch/pieces.js';
import type { BatchEndpoint } from '../contracts/batch-schemas.js';
import { parseBatchLine, type BatchLine } from '../contracts/batches.js';
import type { Params } from '../contracts/requests.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import type { Signal } from '../lib/abort.js';
import { pause } from './batch-slots.js';
import { entitledModel } from './preflight.js';
import * as refusals from './refusals.js';
import type { WorkRoute } from './route.js';
import type { Services } from './services.js';

/** Refusals for lack of room or readiness, which say nothing about the line. */
export const NO_ROOM: ReadonlySet<ErrorCode> = new Set([
  'capacity_exceeded',
  'cold',
  'draining',
  'spool_unhealthy',
  'credit_gate_unavailable',
]);

/** The wait after a refusal that names none, ms. */
const RETRY_MS = 1000;

/** The longest line, bytes: 16 of them may be in memory at once for each model. */
export const LINE_BYTES = 8 * 1024 * 1024;

export interface FileLine {
  /** From 1; blank lines count. */
  readonly number: number;
  /** Without its line break. Undefined: it is longer than {@link LINE_BYTES}. */
  readonly bytes: Uint8Array | undefined;
}

const NEWLINE = 0x0a;

/** The lines of a batch's input that are not blank, in order. Throws {@link DamagedPieces} if it is damaged or missing. */
export async function* inputOf(
  files: FileStore,
  { account, inputFile }: Pick<BatchRecord, 'account' | 'inputFile'>,
): AsyncGenerator<FileLine> {
  const record = files.find(account, inputFile) ?? files.held(inputFile);
  const reader = record && (await files.read(record));
  if (!record || !reader) throw new DamagedPieces('the input file of a batch is missing');
  try {
    yield* linesOf(reader.contents(record.bytes));
  } finally {
    await reader.close();
  }
}

/** The lines that are not blank, in order, each valid until the next one is asked for. What it read is overwritten. */
export async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<FileLine> {
  let number = 1;
  const parts: Uint8Array[] = [];
  let length = 0;
  const overwriteParts = (): void => {
    for (const part of parts.splice(0)) part.fill(0);
  };
  const line = function* (): Generator<FileLine> {
    const bytes = length > LINE_BYTES ? undefined : Buffer.concat(parts);
    overwriteParts();
    length = 0;
    try {
      if (bytes === undefined || !isBlank(bytes)) yield { number, bytes };
    } finally {
      bytes?.fill(0);
    }
  };
  const add = (part: Uint8Array): void => {
    length += part.length;
    parts.push(part);
    if (length > LINE_BYTES) overwriteParts();
  };
  for await (const piece of pieces) {
    let from = 0;
    for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, from)) {
      add(piece.subarray(from, at));
      from = at + 1;
      yield* line();
      number += 1;
    }
    // A copy, so that the end of a piece does not keep all of it in memory.
    add(Uint8Array.from(piece.subarray(from)));
  }
  yield* line();
}

/** Space alone: JSON's, of which a carriage return before the line break is a part. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}

type LineProblem = Omit<BatchProblem, 'line' | 'param'> & { readonly param?: string | null };

interface CheckedBatch {
  readonly endpoint: BatchEndpoint;
  readonly route: WorkRoute;
  readonly caller: Caller;
  readonly services: Services;
  /** The batch stops, and its lines need no check. */
  readonly signal: Signal;
}

/** The lines of one batch, in their order. */
export class LineCheck {
  readonly #batch: CheckedBatch;
  /** Each `custom_id` so far. */
  readonly #names = new Set<string>();

  constructor(batch: CheckedBatch) {
    this.#batch = batch;
  }

  /** Undefined if the line may run. */
  async problemOf({ bytes }: FileLine): Promise<LineProblem | undefined> {
    const code = 'invalid_json_line';
    if (bytes === undefined) return { code, message: `The line is longer than ${LINE_BYTES} bytes.` };
    const parsed = parseBatchLine(bytes);
    if (parsed.kind === 'invalid') return { code, message: parsed.error.message, param: parsed.error.param };
    return await this.#requestProblem(parsed.request).finally(() => parsed.request.body.fill(0));
  }

  async #requestProblem({ customId, url, body }: BatchLine): Promise<LineProblem | undefined> {
    if (url !== this.#batch.endpoint)
      return { code: 'invalid_url', message: 'url must be the endpoint of the batch', param: 'url' };
    if (this.#names.size === this.#names.add(customId).size) {
      const message = 'custom_id must differ from those of all other lines';
      return { code: 'duplicate_custom_id', message, param: 'custom_id' };
    }
    const error = await this.#bodyError(body);
    if (error === undefined) return undefined;
    return { code: error.code, message: error.message, param: error.param === null ? 'body' : `body.${error.param}` };
  }

  /** What the line's route says of its body. */
  async #bodyError(body: Uint8Array): Promise<ContractError | undefined> {
    const { limits, prompts, clock } = this.#batch.services;
    const mostBytes = this.#batch.route.maxBytes(limits);
    if (body.length > mostBytes) return refusals.tooLarge(mostBytes);
    const owner = { account: this.#batch.caller.account, weight: CLASS_WEIGHTS.batch };
    for (;;) {
      const open = prompts.open(
        this.#batch.route.form(this.#batch.services),
        { bytes: body, length: body.length },
        owner,
      );
      const checked = await open.check(this.#batch.signal, true);
      open.close();
      if (checked.kind === 'aborted') return undefined;
      if (checked.kind === 'failed') return refusals.internal();
      if (checked.kind === 'checked') return this.#paramsError(checked.params);
      if (!NO_ROOM.has(checked.error.code)) return checked.error;
      if (!(await pause(clock, checked.error.retryAfterMs ?? RETRY_MS, this.#batch.signal))) return undefined;
    }
  }

  #paramsError(params: Params): ContractError | undefined {
    const { caller, route, services } = this.#batch;
    const model = entitledModel(caller, route, services, params.model);
    if ('code' in model) return model;
    if (model.kind !== route.kind) return refusals.wrongEndpoint(model.kind);
    const streams = 'stream' in params && params.stream;
    return streams ? refusals.badQuery('stream', 'must be false or absent in a batch') : undefined;
  }
}
