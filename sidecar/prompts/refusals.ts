/** What a prompt host refuses a request with. */
import type { HeldReply } from '../../engine/prompt/held-reply.js';
import { contractError, type ErrorCode } from '../domain/errors.js';
import type { Refusal } from './prompt-host.js';

export function refusal(code: ErrorCode, message: string, param: string): Refusal {
  return { kind: 'invalid', error: contractError(code, message, { param }) };
}

/** No reply can be held to the tools, or to the schema that the caller gave for it. */
export function unservable({ of, why }: HeldReply & { kind: 'unservable' }): Refusal {
  return of === 'reply'
    ? refusal('unprocessable', `The schema of the reply ${why}`, 'response_format')
    : refusal('unprocessable', `The schema of the tools ${why}`, 'tools');
}
