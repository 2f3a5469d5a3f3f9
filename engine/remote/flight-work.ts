import type { GenerateJob, ScoreJob } from '../protocol/jobs.js';
import { promptLength } from '../protocol/prompt.js';
import type { Adapter } from './adapter.js';
import type { Flight, FlightEvents } from './flight.js';
import type { RemoteWork } from './remote-job.js';
import { ReplyFlight, type ReplyFlightParts } from './reply-flight.js';
import { ScoreFlight } from './score-flight.js';

/** A job's items, each of which can be sent. */
export interface FlightWork extends RemoteWork {
  begin(item: number, name: string, events: FlightEvents): Flight;
}

export function replies(id: number, job: GenerateJob, parts: ReplyFlightParts): FlightWork {
  const tokens = promptLength(job.prompt) + job.maxTokens;
  return {
    items: job.n,
    seats: job.seats,
    tokens: () => tokens,
    begin: (item, name, events) => new ReplyFlight(id, job, item, name, parts, events),
  };
}

export function questions(id: number, job: ScoreJob, adapter: Adapter): FlightWork {
  return {
    countsEach: true,
    items: job.questions.length,
    seats: job.seats,
    tokens: (item) => job.input.length + (job.questions[item]?.tail.length ?? 0) + 1,
    begin: (item, name, events) => new ScoreFlight(id, job, item, name, adapter, events),
  };
}
