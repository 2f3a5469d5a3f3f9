/**
 * The seat length, in tokens, for a request without a limit of its reply. `contexts`: the lengths of the model's seats, shortest
 * first. It is the shortest in which the reply has as much room as the prompt takes, so that long seats stay free for requests
 * that need them, or the longest if there is none. It depends on the configuration only, so the same request always has the
 * same limit.
 */
export function seatLength(promptTokens: number, contexts: readonly number[]): number {
  return contexts.find((context) => context >= 2 * promptTokens) ?? contexts.at(-1) ?? 0;
}
