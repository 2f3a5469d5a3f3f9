import { inCohort, mayCall, mayUse, type Caller } from '../access/identity.js';
import { modelList, modelObject } from '../contracts/answers.js';
import type { Exchange } from '../http/exchange.js';
import { authorize } from './preflight.js';
import * as refusals from './refusals.js';
import type { HostedModel, Services } from './services.js';
import { RequestContext } from './request-context.js';

/** Model ids may contain slashes, so the pattern matches the rest of the path. */
export const MODEL_PATH = '/v1/models/{id}';

/**
 * GET /v1/models: the chat models that this key may call; none if it may not use the chat route. Decision models are never
 * listed (docs/contract.md#model-list).
 */
export function listModels(exchange: Exchange, services: Services): Promise<void> {
  return answerCaller(exchange, services, (context, caller) => {
    const models = [...services.models.values()].filter((model) => isListed(model, caller));
    context.reply({ status: 200, body: modelList(models) });
  });
}

/** GET /v1/models/{id}: a listed model; all others are answered as unknown. */
export function showModel(exchange: Exchange, services: Services): Promise<void> {
  return answerCaller(exchange, services, (context, caller) => {
    const model = services.models.get(idOf(exchange.head.path));
    if (model && isListed(model, caller)) context.reply({ status: 200, body: modelObject(model) });
    else context.fail(refusals.notEntitled());
  });
}

/** Answers a request that needs only a valid key, or with the refusal of the key. */
async function answerCaller(
  exchange: Exchange,
  services: Services,
  answer: (context: RequestContext, caller: Caller) => void,
): Promise<void> {
  const context = new RequestContext(exchange, 'models', services);
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
