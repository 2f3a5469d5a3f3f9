import { BROKEN_ANSWER } from '../../sidecar/api/checked-exchange.js';

/** Throws, which fails a test at its teardown, if the log reports an answer that violates its schema. */
export function holdAnswers(lines: readonly { readonly event: string }[]): void {
  const broken = lines.filter(({ event }) => event === BROKEN_ANSWER);
  if (broken.length > 0) throw new Error(`answers broke their schemas: ${JSON.stringify(broken)}`);
}
