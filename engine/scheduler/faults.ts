/** A fault whose message contains no content, so that it may be logged. */
export class EngineFault extends Error {
  override readonly name = 'EngineFault';
}

/** The sequence has to be emptied first. What was asked of it can be done with another one. */
export class UncleanSequence extends EngineFault {}

/** The addon's messages for a failed decode, and ours. */
const KNOWN = [
  ['could not find a KV slot', 'no room left in the KV cache'],
  ['Eval has failed', 'llama.cpp could not decode'],
] as const;

/** The text of a fault for a log: of other errors only the name, since their messages may have content. */
export function faultReason(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  if (error instanceof EngineFault) return error.message;
  return KNOWN.find(([phrase]) => error.message.startsWith(phrase))?.[1] ?? error.name;
}

/** The fault as the result of a part of a step. */
export function asFault(error: unknown): { readonly kind: 'fault'; readonly reason: string } {
  return { kind: 'fault', reason: faultReason(error) };
}
