import type { ScoreJob } from '../protocol/jobs.js';
import { distribution } from '../scheduler/scoring.js';
import type { Adapter, Scores } from './adapter.js';
import type { Flight, FlightEvents } from './flight.js';

/** One question of a decision. */
export class ScoreFlight implements Flight {
  readonly name: string;
  readonly #events: FlightEvents;
  readonly #closing = new AbortController();

  constructor(id: number, job: ScoreJob, question: number, name: string, adapter: Adapter, events: FlightEvents) {
    this.name = name;
    this.#events = events;
    const promptTokens = job.input.length + (job.questions[question]?.tail.length ?? 0);
    const temperature = job.temperature * (job.questions[question]?.temperature ?? 1);
    void adapter.score(job, question, this.#closing.signal).then((scores) => {
      if (this.#closing.signal.aborted) return;
      if (scores.kind !== 'scores') this.#ended(scores);
      else if ((scores.cached ?? 0) > promptTokens) events.failed('a wrong count of cached tokens');
      else {
        const { cached, logprobs } = scores;
        events.moved('token');
        events.begun(cached);
        events.outputs([{ id, kind: 'answer', question, ...distribution(logprobs, temperature) }]);
        events.done();
      }
    });
  }

  /** Not known before its answer. */
  get begun(): boolean {
    return false;
  }

  close(): void {
    this.#closing.abort();
  }

  #ended(scores: Exclude<Scores, { kind: 'scores' }>): void {
    if (scores.kind === 'failed') this.#events.failed(scores.why);
    else if (scores.kind === 'busy') this.#events.busy();
    else this.#events.broken();
  }
}
