/** The results of a prompt host other than a prompt. */
import type { CompiledConstraint } from '../../engine/prompt/reply-constraint.js';
import { placeOf } from '../contracts/paths.js';
import type { BodyForm, ChatRequest } from '../contracts/requests.js';
import { WIDE_OPEN_MAPS } from '../contracts/wide-schema.js';
import { contractError, type ContractError, type ErrorCode } from '../domain/errors.js';
import type { Fault } from '../telemetry/scrub.js';
import type { Failed, Refusal } from './prompt-maker.js';

export function refusal(code: ErrorCode, message: string, param: string): Refusal {
  return refused(contractError(code, message, { param }));
}

/** The refusal with an error, such as that of an invalid body. */
export function refused(error: ContractError): Refusal {
  return { kind: 'refused', error };
}

/** `reason`: a short constant text for the log; `fault`: what was thrown. */
export function failed(reason: string, fault?: Fault): Failed {
  return { kind: 'failed', reason, ...(fault && { fault }) };
}

/**
 * The tools' parameters, or the schema for the reply, cannot be enforced. The place is named as in the refusals of a
 * contract: the tool, and of the path the names that are not the caller's.
 */
export function unservable(
  { of, at, why, path = [] }: CompiledConstraint & { kind: 'unservable' },
  form: BodyForm,
  { replySchemaAt = ['response_format'] }: Pick<ChatRequest, 'replySchemaAt'>,
): Refusal {
  if (of === 'tools' && at === undefined) return refusal('unprocessable', `The schema of the tools ${why}`, 'tools');
  const inTool = form === 'responses' ? ['parameters'] : ['function', 'parameters'];
  const root = of === 'reply' ? replySchemaAt : ['tools', String(at), ...inTool];
  const { subject, param } = placeOf([...root, ...path], WIDE_OPEN_MAPS);
  return refusal('unprocessable', `${subject} ${why}`, param ?? root[0] ?? of);
}
