import { inCohort, mayCall, type Caller } from '../access/identity.js';
import { modelNamedBy } from '../contracts/completions.js';
import type { Exchange } from '../http/exchange.js';
import { authorize, isJson, notServing } from './preflight.js';
import * as refusals from './refusals.js';
import type { Services } from './services.js';
import { RequestContext } from './request-context.js';

/**
 * POST /v1/completions: text completion does not exist, so the answer is 404. If the model is a decision model that the key may
 * call, it is 400 and the message names the endpoint for it. A body too long to be parsed on this event loop is not read.
 */
export async function completions(exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, 'other', services);
  try {
    await refuse(context, services);
  } finally {
    context.close();
  }
}

async function refuse(context: RequestContext, services: Services): Promise<void> {
  const { exchange } = context;
  const closed = notServing(services);
  if (closed) {
    context.fail(closed);
    return;
  }
  const caller = await authorize(context, 'chat', services);
  if (caller.kind !== 'caller') {
    context.stop(caller);
    return;
  }
  const named = await namedModel(exchange, services.limits.inlineBytes);
  if (exchange.gone.aborted) context.cancelled('waiting');
  else
    context.fail(
      isDecisionModel(named, caller, services) ? refusals.wrongEndpoint('decision') : refusals.noTextCompletion(),
    );
}

async function namedModel(exchange: Exchange, inlineBytes: number): Promise<string | undefined> {
  if (!isJson(exchange.head.header('content-type'))) return undefined;
  const body = await exchange.body(inlineBytes);
  return body.kind === 'body' && body.bytes ? modelNamedBy(body.bytes) : undefined;
}

/** A model that the key may not call is treated as unknown, so that a caller cannot find out which models exist. */
function isDecisionModel(named: string | undefined, caller: Caller, services: Services): boolean {
  const model = named === undefined ? undefined : services.models.get(named);
  return model?.kind === 'decision' && mayCall(caller.models, model.id) && inCohort(caller, model.cohort);
}
