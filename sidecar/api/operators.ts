import { isAbsolute } from 'node:path';
import { bearerOf } from '../access/identity.js';
import type { Patch } from '../access/keys.js';
import type { QueueReport } from '../admission/report.js';
import type { AdmissionPage } from './admission-page.js';
import { readJson } from '../contracts/json.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { Exchange, RequestHead } from '../http/exchange.js';
import type { Metrics } from '../telemetry/metrics.js';
import { isJson } from './preflight.js';
import * as refusals from './refusals.js';
import type { Services } from './services.js';

/** The secrets with which all metrics can be read on the public listener. */
export interface Scrapers {
  has(secret: string): boolean;
}

/** The access to /metrics on the public listener. */
export interface PublicMetrics {
  readonly metrics: Pick<Metrics, 'render' | 'renderEndpoint'>;
  /** Whether a request without the secret may see the load of the process; otherwise it is refused. */
  readonly open: boolean;
  /** Undefined if no request gets more than that. */
  readonly scrapers: Scrapers | undefined;
}

/**
 * GET /metrics on the public listener, if configured: the load of the process for an endpoint picker, which cannot send a key;
 * all metrics for a request with a scraper's secret. A wrong secret is refused, so that the mistake is noticed.
 */
export async function publicMetrics(exchange: Exchange, { metrics, open, scrapers }: PublicMetrics): Promise<void> {
  const secret = bearerOf(exchange.head);
  const known = secret !== undefined && scrapers?.has(secret) === true;
  if (!known && (!open || exchange.head.header('authorization') !== undefined)) {
    exchange.fail(contractError('invalid_api_key', 'The secret for these metrics is missing or unknown.'));
    return;
  }
  const { contentType, text } = await (known ? metrics.render(namesIn(exchange.head)) : metrics.renderEndpoint());
  exchange.reply({ status: 200, headers: { 'Content-Type': contentType }, body: text });
}

/** GET /metrics on the operators' listener, in Prometheus' text format; all metrics, or those that `name[]` selects. */
export async function operatorsMetrics(exchange: Exchange, services: Pick<Services, 'metrics'>): Promise<void> {
  const { contentType, text } = await services.metrics.render(namesIn(exchange.head));
  exchange.reply({ status: 200, headers: { 'Content-Type': contentType }, body: text });
}

/** The different values of `name[]` in the query, as other exporters of Prometheus accept them; undefined without one. */
function namesIn({ query }: RequestHead): readonly string[] | undefined {
  const names = new Set(new URLSearchParams(query).getAll('name[]'));
  return names.size === 0 ? undefined : [...names];
}

/** The most accounts that are listed for each model; the others are summed up. */
const NAMED = 100;

/** GET /admission on the operators' listener: each model's queue, and what each account has waiting, running and charged. */
export function admission(exchange: Exchange, services: Pick<Services, 'models'>): void {
  const models = Array.from(services.models.values(), ({ id, queue }) => ({
    model: id,
    ...admissionPage(queue.report(NAMED)),
  }));
  exchange.reply({ status: 200, body: JSON.stringify({ models }) });
}

/** Fields of the report that are times in ms, and those that are ratios; all others are shown as they are. */
const TIME = /Ms$|^p[159]0$/;
const RATIO = /^(tokenTimeRatio|load|calibration)$/;

/**
 * The report with its times in whole ms and its ratios in thousandths, without what only metrics show. A field that is added to the report
 * is shown: operators.test.ts names each, so that none is by accident.
 */
export function admissionPage(report: QueueReport): AdmissionPage {
  return rounded(Object.assign({}, report, { waitingBy: undefined }), '') as AdmissionPage;
}

function rounded(value: unknown, field: string): unknown {
  if (typeof value === 'number' && TIME.test(field)) return Math.round(value);
  if (typeof value === 'number' && RATIO.test(field)) return Math.round(value * 1000) / 1000;
  if (Array.isArray(value)) return value.map((each: unknown) => rounded(each, field));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]: [string, unknown]) => [name, rounded(each, name)]),
  );
}

/** A model's id and a path. */
const MAX_BYTES = 8192;

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

/** POST /models/reload for operators, `{"model", "file"?}`, answered at the reload's end. `reload`: undefined during the start. */
export async function reloadModel(exchange: Exchange, reload: Reload | undefined): Promise<void> {
  const read = await objectBody(exchange);
  if (read === undefined) return;
  const asked = 'status' in read ? read : parse(read.body);
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

/**
 * The body of a request that changes something. Returns the refusal if it is none, undefined if the caller has left. The required type
 * also protects against web pages, which may not send it to another origin without a CORS preflight.
 */
export async function jsonBody(exchange: Exchange, limit: number): Promise<Uint8Array | ContractError | undefined> {
  if (!isJson(exchange.head.header('content-type'))) return refusals.wrongContentType();
  const body = await exchange.body(limit);
  if (body.kind === 'gone') return undefined;
  return body.kind === 'body' ? (body.bytes ?? refusals.noRoom()) : refusals.noBody(body.kind, limit);
}

/** The object in such a body. No body is an empty object. */
export async function objectBody(
  exchange: Exchange,
  limit = MAX_BYTES,
): Promise<{ readonly body: Patch } | ContractError | undefined> {
  const bytes = await jsonBody(exchange, limit);
  if (bytes === undefined || 'status' in bytes) return bytes;
  if (bytes.length === 0) return { body: {} };
  const read = readJson(bytes);
  if (!read.ok) return badBody(read.fault === 'repeated-name' ? 'has a name twice' : 'is no JSON');
  const { value } = read;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return badBody('must be an object');
  return { body: value as Patch };
}

export function badBody(why: string): ContractError {
  return contractError('bad_request', `The body ${why}.`);
}

function parse(body: Patch): { readonly model: string; readonly file: string | undefined } | ContractError {
  const { model, file, ...more } = body;
  if (typeof model !== 'string' || Object.keys(more).length > 0) return badBody('is {"model"} with an optional "file"');
  if (file === undefined) return { model, file };
  if (typeof file === 'string' && isAbsolute(file)) return { model, file };
  return contractError('bad_request', 'The file is an absolute path.', { param: 'file' });
}
