import type { Output } from '../protocol/job-output.js';

/**
 * Combines outputs: consecutive pieces of one reply in one channel become one piece. The tokens of several steps in one
 * message are then one event on the wire.
 */
export function joined(outputs: readonly Output[]): Output[] {
  const all: Output[] = [];
  /** By job and choice, the index of its last output, if that is a piece. */
  const lasts = new Map<number, Map<number, number>>();
  for (const output of outputs) {
    const choices = lasts.get(output.id);
    if (output.kind !== 'piece') {
      choices?.clear();
      all.push(output);
      continue;
    }
    const at = choices?.get(output.choice);
    const last = at === undefined ? undefined : all[at];
    if (at !== undefined && last?.kind === 'piece' && last.channel === output.channel) {
      const { id, kind, choice, channel, text, tokens } = output;
      all[at] = { id, kind, choice, channel, text: last.text + text, tokens };
      continue;
    }
    if (choices) choices.set(output.choice, all.length);
    else lasts.set(output.id, new Map([[output.choice, all.length]]));
    all.push(output);
  }
  return all;
}
