/**
 * Tokens that the seat of a request may have which names no limit for its reply, by the lengths of the model's seats, shortest
 * first. The shortest in which the reply has as much room as the prompt takes, so that the long seats stay free for the
 * requests that need them; the longest if it has that in none. It depends on the configuration alone, so the same request
 * always has the same limit.
 */
export function seatLength(promptTokens: number, contexts: readonly number[]): number {
  return contexts.find((context) => context >= 2 * promptTokens) ?? contexts.at(-1) ?? 0;
}
