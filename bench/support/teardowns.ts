/** What a bench has started and must end, for test/support, which registers it with its test. */
export class Teardowns {
  readonly #all: (() => Promise<void> | void)[] = [];

  teardown(fn: () => Promise<void> | void): void {
    this.#all.push(fn);
  }

  /** Ends everything, the last first. */
  async run(): Promise<void> {
    for (const end of this.#all.splice(0).reverse()) await end();
  }
}
