/** What a prompt host refuses a request with. */
import type { CallsFormat } from '../../engine/prompt/call-format.js';
import { contractError, type ErrorCode } from '../domain/errors.js';
import type { Refusal } from './prompt-host.js';

export function refusal(code: ErrorCode, message: string, param: string): Refusal {
  return { kind: 'invalid', error: contractError(code, message, { param }) };
}

/** No reply can be held to the tools. */
export function unservable({ why }: CallsFormat & { kind: 'unservable' }): Refusal {
  return refusal('unprocessable', `What the tools take ${why}`, 'tools');
}
