import type { JobFault, GenerationReceiver, ScoreReceiver } from '../../sidecar/engine-client/engine.js';

/** A receiver that records its calls, for jobs of either kind. */
export class RecordingReceiver implements GenerationReceiver, ScoreReceiver {
  readonly calls: string[] = [];
  /** Settles when the job has started. */
  readonly begun: Promise<void>;
  /** Settles with how the job ended. */
  readonly ended: Promise<JobFault | 'done'>;
  fault: JobFault | undefined;
  #begin!: () => void;
  #end!: (how: JobFault | 'done') => void;

  constructor() {
    this.begun = new Promise((resolve) => (this.#begin = resolve));
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  started(cachedTokens: number): void {
    this.calls.push(`started ${cachedTokens}`);
    this.#begin();
  }

  cached(tokens: number): void {
    this.calls.push(`cached ${tokens}`);
  }

  piece({ choice, text, tokens }: Parameters<GenerationReceiver['piece']>[0]): void {
    this.calls.push(`piece ${choice} ${text} ${tokens}`);
  }

  call({ choice, index, name, arguments: part, tokens }: Parameters<GenerationReceiver['call']>[0]): void {
    this.calls.push(`call ${choice} ${index} ${name ?? '-'} ${part} ${tokens}`);
  }

  finished({ choice, reason, matchedStop, completionTokens }: Parameters<GenerationReceiver['finished']>[0]): void {
    this.calls.push(`finished ${choice} ${reason} ${matchedStop ?? '-'} ${completionTokens}`);
  }

  answer({ question, probabilities, labelMass }: Parameters<ScoreReceiver['answer']>[0]): void {
    this.calls.push(`answer ${question} ${[...probabilities].join('/')} ${labelMass}`);
  }

  seatFreed(): void {
    this.calls.push('seatFreed');
  }

  done(): void {
    this.calls.push('done');
    this.#end('done');
  }

  failed(fault: JobFault): void {
    this.calls.push(`failed ${fault.kind} ${fault.started}`);
    this.fault = fault;
    this.#end(fault);
  }
}
