import { inCohort, mayCall, mayUse } from '../access/identity.js';
import { modelList } from '../contracts/answers.js';
import type { Exchange } from '../http/exchange.js';
import { admit } from './preflight.js';
import type { Services } from './services.js';
import { RequestContext } from './request-context.js';

/**
 * GET /v1/models: the chat models that this key may call here, none for one that may not chat. Decision models are never
 * listed (docs/contract.md#model-list).
 */
export async function listModels(exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, 'models', services);
  try {
    const caller = await admit(context, 'models', services);
    if (caller.kind !== 'caller') {
      context.stop(caller);
      return;
    }
    const models = [...services.models.values()].filter(
      ({ id, kind, cohort }) =>
        kind === 'chat' && mayUse(caller, 'chat') && mayCall(caller.models, id) && inCohort(caller, cohort),
    );
    context.reply({ status: 200, body: modelList(models) });
  } finally {
    context.close();
  }
}
