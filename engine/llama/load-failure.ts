/** Why a model cannot be loaded, in one line for an operator: a name, a size, no content. */
export class LoadFailure extends Error {
  /** A later attempt may succeed: memory used by other processes, a temporary read error. */
  readonly mayMend: boolean;
  /** The model has loaded, and its first step failed. */
  readonly noStep: boolean;

  constructor(line: string, mayMend = false, noStep = false) {
    super(line);
    this.mayMend = mayMend;
    this.noStep = noStep;
  }
}
