/** The public listener's routes, in the order of the documentation. A test checks that the server answers just these. */
import { readFileSync } from 'node:fs';
import type { ContractError } from '../domain/errors.js';
import { ACCOUNT, USAGE } from './account.js';
import { CANCEL_BATCH, CREATE_BATCH, LIST_BATCHES, SHOW_BATCH } from './batches.js';
import { CHAT } from './chat.js';
import { DECISIONS, SYSTEMONE } from './decisions.js';
import { EMBEDDINGS, RERANK } from './embeddings.js';
import { CREATE_FILE, DELETE_FILE, FILE_CONTENT, LIST_FILES, SHOW_FILE } from './files.js';
import { HEALTH, HEALTHZ, READYZ } from './health.js';
import { COUNT_TOKENS, MESSAGES, MESSAGES_FORM } from './messages.js';
import { LIST_MODELS, SHOW_MODEL } from './models.js';
import * as refusals from './refusals.js';
import { RESPONSES } from './responses.js';
import {
  ANY_ERRORS,
  type AnswerFormOf,
  type Contract,
  type PlainRoute,
  type RouteReference,
  type WorkRoute,
} from './route.js';

/** The description of all routes. It needs no key: its content is public. */
const OPENAPI: PlainRoute = {
  serve: (exchange, { contract, batch }) =>
    exchange.reply({ status: 200, body: documentOf({ contract, batch: batch !== undefined }) }),
  reference: {
    path: '/v1/openapi.json',
    method: 'get',
    id: 'openapi',
    tag: 'service',
    summary: 'This description',
    description: 'OpenAPI 3.1, made from the schemas that requests are checked against.',
    key: false,
    answer: 'OpenApi',
    errors: ANY_ERRORS,
  },
};

export const ROUTES: readonly (WorkRoute | PlainRoute)[] = [
  CHAT,
  LIST_MODELS,
  DECISIONS,
  SYSTEMONE,
  EMBEDDINGS,
  RERANK,
  OPENAPI,
  HEALTHZ,
  READYZ,
  HEALTH,
  RESPONSES,
  MESSAGES,
  COUNT_TOKENS,
  SHOW_MODEL,
  USAGE,
  ACCOUNT,
  CREATE_FILE,
  LIST_FILES,
  FILE_CONTENT,
  SHOW_FILE,
  DELETE_FILE,
  CREATE_BATCH,
  LIST_BATCHES,
  CANCEL_BATCH,
  SHOW_BATCH,
];

/** What decides which routes a sidecar serves. */
export interface Serving {
  readonly contract: Contract;
  /** `batch.store` is not `off`. */
  readonly batch: boolean;
}

export function routesOf(serving: Serving): readonly (WorkRoute | PlainRoute)[] {
  documentOf(serving);
  return ROUTES.filter(({ reference }) => isServed(reference, serving));
}

function isServed({ compatibleOnly, needs }: RouteReference, { contract, batch }: Serving): boolean {
  return (contract === 'compatible' || compatibleOnly !== true) && (batch || needs !== 'batch');
}

/** The form of the answers to a request, if its route has one of its own. Absent: no route of this contract has. */
export function answerForms(contract: Contract): AnswerFormOf | undefined {
  if (contract === 'strict') return undefined;
  const byPath = new Map(ROUTES.map(({ reference, answerForm }) => [reference.path, answerForm]));
  // Clients of the Messages API also ask for what is not served, below its path.
  return (head) =>
    head.route === undefined
      ? head.path.startsWith('/v1/messages/')
        ? MESSAGES_FORM
        : undefined
      : byPath.get(head.route)?.(head);
}

/** The same as they are described. */
export function referencesOf(serving: Serving): readonly RouteReference[] {
  const served = ROUTES.map(({ reference }) => reference).filter((reference) => isServed(reference, serving));
  if (serving.contract === 'strict') return served;
  return served.map((reference) => {
    const { frames, errors, compatibleFrames = [], compatibleErrors = [] } = reference;
    const { compatibleRequest: request = reference.request, compatibleAnswer: answer = reference.answer } = reference;
    const compatible = {
      answer,
      errors: [...errors, ...compatibleErrors],
      ...(request !== undefined && { request }),
      ...(frames && { frames: [...frames, ...compatibleFrames] }),
    };
    return Object.assign({}, reference, compatible);
  });
}

const documents = new Map<string, Uint8Array>();

/** The OpenAPI document as JSON. It takes a tenth of a second to make: the build does. Read at the start and kept. */
function documentOf({ contract, batch }: Serving): Uint8Array {
  const name = `openapi-${contract}${batch ? '-batch' : ''}.json`;
  const read = documents.get(name) ?? readFileSync(new URL(`./${name}`, import.meta.url));
  documents.set(name, read);
  return read;
}

/** The 404 of a path at which nothing is served: it lists what a sidecar with this contract serves. */
export function notServed(path: string, serving: Serving): ContractError {
  const elsewhere = ROUTES.map(({ reference }) => reference).filter((reference) => covers(reference, path));
  if (elsewhere.some(({ needs }) => needs === 'batch')) return refusals.batchesOff();
  if (serving.contract === 'strict' && elsewhere.length > 0) return refusals.compatibleOnly();
  const rank = ({ compatibleOnly = false, method }: RouteReference): number =>
    Number(compatibleOnly) * 2 + Number(method === 'get');
  const served = referencesOf(serving).filter(({ key }) => key);
  const plain = path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  return refusals.notServed(
    [...served].sort((a, b) => rank(a) - rank(b)).map((route) => `${route.method.toUpperCase()} ${route.path}`),
    plain !== path && served.some((reference) => covers(reference, plain)),
  );
}

/** As the route table of the server finds it: a path with `{…}` stands for all longer paths with the same beginning and end. */
function covers(reference: RouteReference, path: string): boolean {
  const [beginning = '', end] = reference.path.split(/\{.*\}/);
  if (end === undefined) return reference.path === path;
  return path.length > beginning.length + end.length && path.startsWith(beginning) && path.endsWith(end);
}
