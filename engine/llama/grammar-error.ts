/** A grammar cannot be used. Its name is the reason that a fault gives. */
export class GrammarError extends Error {
  override readonly name = 'GrammarError';

  constructor() {
    super('the grammar cannot be used');
  }
}
