import { isAbsolute } from 'node:path';
import { contractError, type ContractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import { isJson } from './preflight.js';
import * as refusals from './refusals.js';

/** A model's id and a path. */
const MAX_BYTES = 8192;

/** How a reload ended. */
export type Reloaded =
  | {
      readonly kind: 'reloaded';
      /** The version that every replica serves now. */
      readonly version: string;
      /** Replicas that loaded it; 0: all had it. */
      readonly replicas: number;
      readonly file: string;
    }
  | { readonly kind: 'unknown-model' }
  /** `why`: one line for the operator. Some replicas may have the new weights. */
  | { readonly kind: 'failed'; readonly why: string };

/** Loads other weights of a model. Without `file`, those at its present path. */
export type Reload = (model: string, file: string | undefined) => Promise<Reloaded>;

/**
 * POST /models/reload on the operators' listener, answered when the reload has ended: `{"model", "file"?}`. `reload`: undefined while
 * the sidecar starts.
 */
export async function reloadModel(exchange: Exchange, reload: Reload | undefined): Promise<void> {
  // This also protects against web pages, which may not send this type to another origin without a CORS preflight.
  if (!isJson(exchange.head.header('content-type'))) {
    exchange.fail(refusals.wrongContentType());
    return;
  }
  const body = await exchange.body(MAX_BYTES);
  if (body.kind === 'gone') return;
  const bytes = body.kind === 'body' ? body.bytes : undefined;
  const asked = bytes ? parse(bytes) : refusals.tooLarge(MAX_BYTES);
  if ('status' in asked) {
    exchange.fail(asked);
    return;
  }
  if (reload === undefined) {
    exchange.fail(contractError('cold', 'The sidecar still starts.'));
    return;
  }
  const end = await reload(asked.model, asked.file);
  if (end.kind === 'unknown-model') exchange.fail(contractError('not_found', 'No such model is configured.'));
  else if (end.kind === 'failed') exchange.fail(contractError('unprocessable', end.why));
  else {
    const { version, replicas, file } = end;
    const answer = { model: asked.model, weight_version: version, replicas, file };
    exchange.reply({ status: 200, body: JSON.stringify(answer) });
  }
}

function parse(bytes: Uint8Array): { readonly model: string; readonly file: string | undefined } | ContractError {
  let raw: unknown;
  try {
    raw = JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch {
    return contractError('bad_request', 'The body is no JSON.');
  }
  const { model, file, ...more } = (typeof raw === 'object' && raw !== null ? raw : {}) as Readonly<
    Record<string, unknown>
  >;
  if (typeof model !== 'string' || Object.keys(more).length > 0)
    return contractError('bad_request', 'The body is {"model"} with an optional "file".');
  if (file === undefined) return { model, file };
  if (typeof file === 'string' && isAbsolute(file)) return { model, file };
  return contractError('bad_request', 'The file is an absolute path.', { param: 'file' });
}
