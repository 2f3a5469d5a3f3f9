import { inCohort, mayCall, mayUse, type Caller } from '../access/identity.js';
import { describedModel, describedModelList, modelList, type ModelDescription } from '../contracts/answers.js';
import type { ModelRoute } from '../contracts/requests.js';
import { anthropicModel, anthropicModels } from '../contracts/message-answers.js';
import type { AnswerForm, Exchange, RequestHead } from '../http/exchange.js';
import { MESSAGES_FORM } from './messages.js';
import { authorize } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, RequestContext } from './request-context.js';
import { ANY_ERRORS, KEY_ERRORS, type PlainRoute } from './route.js';
import type { HostedModel, Services } from './services.js';

/** The models that this key may call by a route that it may use. Decision models are never listed (docs/contract.md#model-list). */
export const LIST_MODELS: PlainRoute = {
  serve: (exchange, services) =>
    answerCaller(exchange, services, (context, caller) => {
      const models = [...services.models.values()].filter((model) => isListed(model, caller));
      context.reply({ status: 200, body: listOf(models, exchange, services) });
    }),
  answerForm: formOf,
  reference: {
    path: '/v1/models',
    method: 'get',
    id: 'listModels',
    tag: 'chat',
    summary: 'List the models that the key may call',
    description: 'What this key may call in this environment.',
    key: true,
    answer: 'ModelList',
    compatibleAnswer: 'DescribedModelList',
    errors: [...ANY_ERRORS, ...KEY_ERRORS],
  },
};

/** Model ids may contain slashes, so the pattern matches the rest of the path. */
const MODEL_PATH = '/v1/models/{id}';

/** A listed model; all others are answered as unknown. */
export const SHOW_MODEL: PlainRoute = {
  serve: (exchange, services) =>
    answerCaller(exchange, services, (context, caller) => {
      const id = idOf(exchange.head.path);
      const model = services.models.get(id);
      if (!model || !isListed(model, caller)) context.stop(failed(refusals.notEntitled('chat')));
      else {
        const description = descriptionOf(model, services);
        const shown = exchange.answerForm ? anthropicModel(description) : describedModel(description);
        context.reply({ status: 200, body: JSON.stringify(shown) });
      }
    }),
  answerForm: formOf,
  reference: {
    compatibleOnly: true,
    path: MODEL_PATH,
    method: 'get',
    id: 'showModel',
    tag: 'chat',
    summary: 'One model that the key may call',
    description: 'Under `contract: compatible`. A model that is not in the list is 403.',
    key: true,
    answer: 'DescribedModel',
    errors: [...ANY_ERRORS, ...KEY_ERRORS],
  },
};

/** Answers a request that needs only a valid key, or with the refusal of the key. */
async function answerCaller(
  exchange: Exchange,
  services: Services,
  answer: (context: RequestContext, caller: Caller) => void,
): Promise<void> {
  // An answer in the form of the Messages API is served under the compatible contract alone.
  const takesApiKey = services.contract === 'compatible' && ({ takesApiKey: true } as const);
  const context = new RequestContext(exchange, { name: 'models', ...takesApiKey }, services);
  try {
    const caller = await authorize(context, 'models', services);
    if (caller.kind === 'caller') answer(context, caller);
    else context.stop(caller);
  } finally {
    context.close();
  }
}

/** Clients of the Messages API name its version in each request. */
function formOf(head: RequestHead): AnswerForm | undefined {
  return head.header('anthropic-version') === undefined ? undefined : MESSAGES_FORM;
}

function listOf(models: readonly HostedModel[], { answerForm }: Exchange, services: Services): string {
  if (services.contract === 'strict') return modelList(models);
  const described = models.map((model) => descriptionOf(model, services));
  if (!answerForm) return describedModelList(described);
  // The clients of the Messages API only chat.
  return anthropicModels(described.filter(({ kind }) => kind === 'chat'));
}

function descriptionOf(model: HostedModel, { pricing, date, templates }: Services): ModelDescription {
  const { id, kind, created, ownedBy, engine, vision } = model;
  return {
    id,
    kind,
    created,
    ownedBy,
    context: engine.contexts.at(-1) ?? 0,
    takesImages: vision !== undefined,
    template: kind === 'chat' ? templates?.().find((template) => template.id === id) : undefined,
    rates: pricing.tariff(model, date().getTime()).rates,
  };
}

/** The route that a listed model is called by; absent: it is not listed. */
const LISTED: Readonly<Partial<Record<HostedModel['kind'], ModelRoute>>> = {
  chat: 'chat',
  embedding: 'embeddings',
  rerank: 'rerank',
};

function isListed({ id, kind, cohort }: HostedModel, caller: Caller): boolean {
  const route = LISTED[kind];
  return route !== undefined && mayUse(caller, route) && mayCall(caller.models, id) && inCohort(caller, cohort);
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
