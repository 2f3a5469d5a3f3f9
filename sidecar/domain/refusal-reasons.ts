/** Why the queue refuses, a row a reason: routes read `code` and `message`, the queue `retryAfter` and `reserves`, metrics its name. */
import type { ErrorCode } from './errors.js';

interface RefusalRow {
  readonly code: Extract<ErrorCode, 'capacity_exceeded' | 'draining' | 'timeout' | 'bad_gateway'>;
  readonly message: string;
  /**
   * What Retry-After is computed from. `wait`: the predicted wait, less the time that the request could have waited. `place`: the time
   * until the account's next request is seated, which frees a place. `soon`: no prediction applies, another server may answer.
   */
  readonly retryAfter: 'wait' | 'place' | 'soon';
  /** Whether a time to return is reserved if the queue stands (admission/retry.ts). */
  readonly reserves: boolean;
}

/** It may be served later. */
function busy(message: string, retryAfter: RefusalRow['retryAfter'], reserves: boolean): RefusalRow {
  return { code: 'capacity_exceeded', message, retryAfter, reserves };
}

export const REFUSALS = {
  /** No place to wait is free, and no other account has more requests waiting. */
  full: busy('All seats are busy and the queue is full.', 'place', true),
  /** The bodies of the waiting requests leave no room for this one. */
  bytes: busy('All seats are busy and the queue holds too many bytes.', 'place', false),
  predicted: busy('All seats are busy and the wait would be too long.', 'wait', true),
  /** The same, while seats are kept for sessions that go on (admission/sessions.ts). */
  sessions: busy('All seats are taken by sessions in progress and the wait would be too long.', 'wait', true),
  /** More requests arrive than the seats can serve, and the seats stay busy with fewer waiting. */
  standing: busy('All seats are busy and more requests come than they can serve.', 'place', true),
  /** The wait would be longer than callers like this one stay. */
  patience: busy('All seats are busy and the wait is longer than most callers stay.', 'wait', true),
  /** The wait would exceed the client's own timeout. */
  named: busy('All seats are busy and the wait would pass the time that the request names.', 'wait', false),
  /** It waited as long as its client does, or so long that a newer request's caller is more likely to be there when it is answered. */
  hopeless: busy('No seat came free while the reply could still be in time.', 'wait', true),
  /** It waited, and made room for a request of an account with fewer waiting, or with none and less seat time. */
  dropped: busy('The request made room in the full queue for one of an account that has less waiting.', 'place', true),
  /** It got no seat within the longest wait. Answered 503 `cold` while the model loads. */
  wait: busy('No seat came free within the longest wait.', 'wait', true),
  /** Its deadline passed before it had a seat. */
  deadline: {
    code: 'timeout',
    message:
      'The deadline of the request passed while it waited for a seat. Name a later one if the request named one.',
    retryAfter: 'wait',
    reserves: false,
  },
  drain: {
    code: 'draining',
    message: 'This server is shutting down. Another server, or this one once it has restarted, will take the request.',
    retryAfter: 'soon',
    reserves: false,
  },
  /** Its engine was lost before it began the request, once for each replica and once more. */
  'engine-lost': {
    code: 'bad_gateway',
    message: 'The engine was lost each time before it began this request. Try again shortly.',
    retryAfter: 'soon',
    reserves: false,
  },
  /** The model could not be loaded, and is not loaded again without a new request. Answered 503 `cold` while the model loads. */
  'no-engine': busy('The model could not be loaded.', 'soon', false),
} satisfies Record<string, RefusalRow>;

export type RefusalReason = keyof typeof REFUSALS;

/** All reasons, in the order of the table. */
export const REFUSAL_REASONS = Object.keys(REFUSALS) as readonly RefusalReason[];
