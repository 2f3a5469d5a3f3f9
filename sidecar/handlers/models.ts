import { mayCall } from '../access/identity.js';
import { modelList } from '../contracts/answers.js';
import type { Exchange } from '../http/exchange.js';
import { identify } from './entrance.js';
import type { Services } from './services.js';
import { Visit } from './visit.js';

/** GET /v1/models: the chat models that this key may call here. Decision models are never listed (spec.md). */
export async function listModels(exchange: Exchange, services: Services): Promise<void> {
  const visit = new Visit(exchange, 'models', services);
  const caller = await identify(visit, services);
  if (!caller) return;
  const models = [...services.models.values()].filter(({ id, kind }) => kind === 'chat' && mayCall(caller.models, id));
  visit.reply({ status: 200, body: modelList(models) });
}
