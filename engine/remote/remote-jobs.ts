import type { Output } from '../protocol/job-output.js';
import type { RemoteJob, RemoteWork } from './remote-job.js';
import type { Reports } from './reports.js';

/**
 * The jobs that have not ended, in the order of their arrival: at most as many as the sidecar has leases. Reports to the sidecar
 * which of their seats are free.
 */
export class RemoteJobs<W extends RemoteWork> {
  readonly #reports: Pick<Reports, 'push'>;
  readonly #jobs = new Map<number, RemoteJob<W>>();

  constructor(reports: Pick<Reports, 'push'>) {
    this.#reports = reports;
  }

  get(id: number): RemoteJob<W> | undefined {
    return this.#jobs.get(id);
  }

  values(): Iterable<RemoteJob<W>> {
    return this.#jobs.values();
  }

  has({ id }: RemoteJob<W>): boolean {
    return this.#jobs.has(id);
  }

  add(job: RemoteJob<W>): void {
    this.#jobs.set(job.id, job);
  }

  /** Ends it with these outputs, with the last of which the sidecar takes its seats back. False: it had ended before. */
  end(job: RemoteJob<W>, ...outputs: readonly Output[]): boolean {
    if (!this.#jobs.delete(job.id)) return false;
    job.leased = false;
    this.#reports.push(outputs);
    return true;
  }

  /** The sidecar takes its seats back with `cancelled`, once the server computes nothing of it. */
  cancel({ id }: RemoteJob<W>): void {
    this.#jobs.delete(id);
  }

  /** Frees the seats that it does not need any more, if it has not ended. */
  freeSpare(job: RemoteJob<W>): void {
    if (!this.has(job)) return;
    for (let n = job.releaseSpare(); n > 0; n--) this.#reports.push([{ id: job.id, kind: 'seatFreed' }]);
  }

  /** Their seats, without those of requests that were closed. */
  get seats(): number {
    let seats = 0;
    for (const job of this.#jobs.values()) seats += job.seats - job.leaving;
    return seats;
  }
}
