/** A fault whose message is ours and holds no content, so that it may be logged as it is. */
export class EngineFault extends Error {
  override readonly name = 'EngineFault';
}

/** The addon's words for a decode that failed, and ours. */
const KNOWN = [
  ['could not find a KV slot', 'no room left in the KV cache'],
  ['Eval has failed', 'llama.cpp could not decode'],
] as const;

/** What may be said of a fault in a log: other messages are not known to hold no content, so their name alone. */
export function faultReason(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  if (error instanceof EngineFault) return error.message;
  return KNOWN.find(([phrase]) => error.message.startsWith(phrase))?.[1] ?? error.name;
}

/** The fault as what became of a part of a step. */
export function asFault(error: unknown): { readonly kind: 'fault'; readonly reason: string } {
  return { kind: 'fault', reason: faultReason(error) };
}
