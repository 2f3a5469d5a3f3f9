import type { EngineFault, GenerationSink, ScoreSink } from '../../sidecar/engine-client/engine.js';

/** A sink that writes down what is called on it, for jobs of either kind. */
export class RecordingSink implements GenerationSink, ScoreSink {
  readonly calls: string[] = [];
  /** Settles when the job has started. */
  readonly begun: Promise<void>;
  /** Settles with how the job ended. */
  readonly ended: Promise<EngineFault | 'done'>;
  fault: EngineFault | undefined;
  #begin!: () => void;
  #end!: (how: EngineFault | 'done') => void;

  constructor() {
    this.begun = new Promise((resolve) => (this.#begin = resolve));
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  started(cachedTokens: number): void {
    this.calls.push(`started ${cachedTokens}`);
    this.#begin();
  }

  piece({ choice, text, tokens }: Parameters<GenerationSink['piece']>[0]): void {
    this.calls.push(`piece ${choice} ${text} ${tokens}`);
  }

  call({ choice, index, name, arguments: part, tokens }: Parameters<GenerationSink['call']>[0]): void {
    this.calls.push(`call ${choice} ${index} ${name ?? '-'} ${part} ${tokens}`);
  }

  finished({ choice, reason, matchedStop, completionTokens }: Parameters<GenerationSink['finished']>[0]): void {
    this.calls.push(`finished ${choice} ${reason} ${matchedStop ?? '-'} ${completionTokens}`);
  }

  answer({ question, probabilities, labelMass }: Parameters<ScoreSink['answer']>[0]): void {
    this.calls.push(`answer ${question} ${[...probabilities].join('/')} ${labelMass}`);
  }

  freed(): void {
    this.calls.push('freed');
  }

  done(): void {
    this.calls.push('done');
    this.#end('done');
  }

  failed(fault: EngineFault): void {
    this.calls.push(`failed ${fault.kind} ${fault.started}`);
    this.fault = fault;
    this.#end(fault);
  }
}
