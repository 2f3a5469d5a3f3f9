/** Why a model cannot be loaded, in one line that is fit for an operator: a name, a size, no content. */
export class LoadFailure extends Error {
  /** Trying again later may help: memory that others hold now, a file that could not be read for once. */
  readonly mayMend: boolean;

  constructor(line: string, mayMend = false) {
    super(line);
    this.mayMend = mayMend;
  }
}
