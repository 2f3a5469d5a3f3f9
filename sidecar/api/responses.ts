import { randomUUID } from 'node:crypto';
import type { ChatParams } from '../contracts/requests.js';
import type { ResponseHead } from '../contracts/response-answers.js';
import type { Exchange } from '../http/exchange.js';
import { complete } from './chat.js';
import type { PreparedRequest } from './preflight.js';
import type { ReplyWriter } from './reply-writers.js';
import { RequestContext } from './request-context.js';
import { ResponseStreamWriter, WholeResponseWriter } from './response-writers.js';
import type { Services } from './services.js';

/** The names of a chat's fields in the Responses API. */
const FIELDS: Readonly<Record<string, string>> = {
  messages: 'input',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
};

/** POST /v1/responses, whole or streamed: a chat in the form of the Responses API. Nothing is stored. */
export async function responses(exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, 'responses', services);
  context.fieldNames = FIELDS;
  try {
    const end = await complete(context, services, { form: 'responses', makeWriter });
    if (end.kind !== 'ended') context.stop(end);
  } finally {
    context.close();
  }
}

function makeWriter(
  context: RequestContext,
  { params, model }: PreparedRequest<ChatParams>,
  services: Services,
): ReplyWriter {
  const now = (): number => Math.floor(services.date().getTime() / 1000);
  const head: ResponseHead = {
    id: `resp_${randomUUID().replaceAll('-', '')}`,
    created: now(),
    now,
    model: model.id,
    params,
  };
  if (!params.stream) return new WholeResponseWriter(context, head);
  const { clock, limits } = services;
  const writer = new ResponseStreamWriter(context, head, { clock, keepAliveMs: limits.keepAliveMs });
  context.onClose(() => writer.close());
  return writer;
}
