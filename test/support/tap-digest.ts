/**
 * The part of a run’s TAP that a reader needs: a line for each file as it ends (one that shares a process with others
 * is a test of their group), every failure in full, and a last line with the counts. Fed line by line.
 */
export interface Verdict {
  readonly passed: number;
  readonly failed: number;
  readonly ok: boolean;
}

export class TapDigest {
  #counts = '';
  /** Indent of the failure on the line before, whose details may begin now. */
  #failure: string | undefined;
  /** The line that ends the details being shown. */
  #end: string | undefined;

  /** Takes one line of TAP; returns whether to show it. */
  shows(line: string): boolean {
    if (this.#failure !== undefined && line === `${this.#failure}  ---`) this.#end = `${this.#failure}  ...`;
    this.#failure = undefined;
    if (this.#end !== undefined) {
      if (line === this.#end) this.#end = undefined;
      return true;
    }
    this.#failure = /^( *)not ok \d/.exec(line)?.[1];
    if (line.startsWith('# { total: ')) this.#counts = line;
    return this.#failure !== undefined || /^(ok| {4}ok) \d+ - dist\//.test(line);
  }

  /** Whether tap has counted, which it does when all tests have ended. */
  get complete(): boolean {
    return this.#counts !== '';
  }

  /**
   * What tap counted, in assertions. A run with a failure status (`status`, tap’s own) without a counted failure, or in
   * which nothing passed, has failed once.
   */
  verdict(status: number): Verdict {
    const count = (name: string): number => Number(new RegExp(` ${name}: (\\d+)`).exec(this.#counts)?.[1] ?? 0);
    const failed = Math.max(count('fail'), status === 0 && count('pass') > 0 ? 0 : 1);
    return { passed: count('pass'), failed, ok: failed === 0 };
  }
}
