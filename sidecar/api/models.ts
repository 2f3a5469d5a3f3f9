import { inCohort, mayCall, mayUse, type Caller } from '../access/identity.js';
import { modelList, modelObject } from '../contracts/answers.js';
import type { Exchange } from '../http/exchange.js';
import { authorize } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, RequestContext } from './request-context.js';
import { ANY_ERRORS, KEY_ERRORS, type PlainRoute } from './route.js';
import type { HostedModel, Services } from './services.js';

/**
 * The chat models that this key may call; none if it may not use the chat route. Decision models are never listed
 * (docs/contract.md#model-list).
 */
export const LIST_MODELS: PlainRoute = {
  serve: (exchange, services) =>
    answerCaller(exchange, services, (context, caller) => {
      const models = [...services.models.values()].filter((model) => isListed(model, caller));
      context.reply({ status: 200, body: modelList(models) });
    }),
  reference: {
    path: '/v1/models',
    method: 'get',
    id: 'listModels',
    tag: 'chat',
    summary: 'List the chat models that the key may call',
    description: 'The authority on what may be called with this key in this environment.',
    key: true,
    answer: 'ModelList',
    errors: [...ANY_ERRORS, ...KEY_ERRORS],
  },
};

/** Model ids may contain slashes, so the pattern matches the rest of the path. */
const MODEL_PATH = '/v1/models/{id}';

/** A listed model; all others are answered as unknown. */
export const SHOW_MODEL: PlainRoute = {
  serve: (exchange, services) =>
    answerCaller(exchange, services, (context, caller) => {
      const model = services.models.get(idOf(exchange.head.path));
      if (model && isListed(model, caller)) context.reply({ status: 200, body: modelObject(model) });
      else context.stop(failed(refusals.notEntitled()));
    }),
  reference: {
    compatibleOnly: true,
    path: MODEL_PATH,
    method: 'get',
    id: 'showModel',
    tag: 'chat',
    summary: 'One chat model that the key may call',
    description: 'Served under `contract: compatible`. A model that is not in the list is 403.',
    key: true,
    answer: 'Model',
    errors: [...ANY_ERRORS, ...KEY_ERRORS],
  },
};

/** Answers a request that needs only a valid key, or with the refusal of the key. */
async function answerCaller(
  exchange: Exchange,
  services: Services,
  answer: (context: RequestContext, caller: Caller) => void,
): Promise<void> {
  const context = new RequestContext(exchange, { name: 'models' }, services);
  try {
    const caller = await authorize(context, 'models', services);
    if (caller.kind === 'caller') answer(context, caller);
    else context.stop(caller);
  } finally {
    context.close();
  }
}

function isListed({ id, kind, cohort }: HostedModel, caller: Caller): boolean {
  return kind === 'chat' && mayUse(caller, 'chat') && mayCall(caller.models, id) && inCohort(caller, cohort);
}

/** Some clients encode the slashes of an id. */
function idOf(path: string): string {
  const id = path.slice(MODEL_PATH.indexOf('{'));
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}
