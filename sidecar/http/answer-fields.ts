import type { Field } from './cors.js';
import type { RequestHead } from './exchange.js';
import { responseFields } from './fields.js';
import type { ServerContext } from './server-context.js';

/** With its charset, since without one Python's requests decodes the text as ISO-8859-1. */
export const EVENT_STREAM = 'text/event-stream; charset=utf-8';

/** An answer's status, the type of its body, and the handler's own fields. */
export interface Answer {
  readonly status: number;
  readonly type: string | undefined;
  readonly own: Readonly<Record<string, string>>;
}

/** The fields of an answer: the handler's own, and those of every answer of this server. */
export function answerFields(
  { loadReport, cors }: Pick<ServerContext, 'loadReport' | 'cors'>,
  head: RequestHead,
  { status, type, own }: Answer,
): readonly Field[] {
  const { fields, names } = responseFields(type, own, head.requestId);
  if (names.has('trailer')) names.add('server-timing');
  const report = loadReport?.field(head, status);
  return [...fields, ...(report === undefined ? [] : [report]), ...cors.fields(head, names)];
}
