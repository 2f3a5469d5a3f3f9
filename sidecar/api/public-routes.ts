/** The public listener's routes, in the order of the documentation. A test checks that the server answers just these. */
import { readFileSync } from 'node:fs';
import type { ContractError } from '../domain/errors.js';
import { ACCOUNT, USAGE } from './account.js';
import { CHAT } from './chat.js';
import { DECISIONS, SYSTEMONE } from './decisions.js';
import { EMBEDDINGS, RERANK } from './embeddings.js';
import { HEALTH, HEALTHZ, READYZ } from './health.js';
import { COUNT_TOKENS, MESSAGES } from './messages.js';
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
  serve: (exchange, { contract }) => exchange.reply({ status: 200, body: documentOf(contract) }),
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
];

/** The routes of a sidecar with this contract. */
export function routesOf(contract: Contract): readonly (WorkRoute | PlainRoute)[] {
  documentOf(contract);
  return contract === 'compatible' ? ROUTES : ROUTES.filter(({ reference }) => reference.compatibleOnly !== true);
}

/** The form of the answers to a request, if its route has one of its own. Absent: no route of this contract has. */
export function answerForms(contract: Contract): AnswerFormOf | undefined {
  if (contract === 'strict') return undefined;
  const byPath = new Map(ROUTES.map(({ reference, answerForm }) => [reference.path, answerForm]));
  return (head) => byPath.get(head.route ?? '')?.(head);
}

/** The same as they are described. */
export function referencesOf(contract: Contract): readonly RouteReference[] {
  return ROUTES.map(({ reference }) => reference).flatMap((reference) => {
    if (contract === 'strict') return reference.compatibleOnly === true ? [] : [reference];
    const { frames, errors, compatibleFrames = [], compatibleErrors = [] } = reference;
    const { compatibleRequest: request = reference.request, compatibleAnswer: answer = reference.answer } = reference;
    const compatible = {
      answer,
      errors: [...errors, ...compatibleErrors],
      ...(request !== undefined && { request }),
      ...(frames && { frames: [...frames, ...compatibleFrames] }),
    };
    return [Object.assign({}, reference, compatible)];
  });
}

const documents = new Map<Contract, Uint8Array>();

/** The OpenAPI document as JSON. It takes a tenth of a second to make: the build does. Read at the start and kept. */
function documentOf(contract: Contract): Uint8Array {
  const read = documents.get(contract) ?? readFileSync(new URL(`./openapi-${contract}.json`, import.meta.url));
  documents.set(contract, read);
  return read;
}

/** The 404 of a path at which nothing is served: it lists what a sidecar with this contract serves. */
export function notServed(path: string, contract: Contract): ContractError {
  const elsewhere = ROUTES.some(({ reference }) => reference.compatibleOnly === true && covers(reference, path));
  if (contract === 'strict' && elsewhere) return refusals.compatibleOnly();
  const rank = ({ compatibleOnly = false, method }: RouteReference): number =>
    Number(compatibleOnly) * 2 + Number(method === 'get');
  const served = referencesOf(contract).filter(({ key }) => key);
  const plain = path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  return refusals.notServed(
    [...served].sort((a, b) => rank(a) - rank(b)).map((route) => `${route.method.toUpperCase()} ${route.path}`),
    plain !== path && served.some((reference) => covers(reference, plain)),
  );
}

/** As the route table of the server finds it: a path that ends in `{…}` stands for all longer paths with the same beginning. */
function covers(reference: RouteReference, path: string): boolean {
  const at = reference.path.indexOf('{');
  return at < 0 ? reference.path === path : path.length > at && path.startsWith(reference.path.slice(0, at));
}
