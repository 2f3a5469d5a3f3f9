/** Compares our prompts with the server's own, so that its model is given what its template makes of a conversation. */
import { chatPrompt, promptPieces, type PromptParts } from '../prompt/chat-prompt.js';
import { promptIds } from '../protocol/prompt.js';
import type { Adapter, ProbeMessage } from './adapter.js';

/** Conversations of our own, which show most differences of templates and tokenizers. */
const PROBES: Readonly<Record<string, readonly ProbeMessage[]>> = {
  'one message': [{ role: 'user', content: 'What is the capital of France?' }],
  'a system message': [
    { role: 'system', content: 'You answer in one sentence.' },
    { role: 'user', content: 'Why is the sky blue?' },
  ],
  'three turns': [
    { role: 'user', content: 'Name a prime number.' },
    { role: 'assistant', content: '17' },
    { role: 'user', content: 'And the next one?' },
  ],
  'text of many kinds': [
    {
      role: 'user',
      content: 'naïve café, 東京, Привет, 🙂👩‍🚀; 3.14159 + 0x2A = ?\n\n\tif (a[i] != b) { return "x"; }   done',
    },
  ],
};

export type Parity =
  { readonly kind: 'equal' } | { readonly kind: 'unknown' } | { readonly kind: 'different'; readonly how: string };

/** `how`: one line for the operator. A conversation that neither side's template expresses is no difference. */
export async function compare(parts: PromptParts, adapter: Pick<Adapter, 'promptIds'>): Promise<Parity> {
  let compared = 0;
  for (const [name, messages] of Object.entries(PROBES)) {
    const made = chatPrompt(parts, { messages }, { addGenerationPrompt: true }, Infinity);
    const text = textOf(parts, messages);
    const theirs = await adapter.promptIds({ messages, text });
    if (made.kind !== 'prompt' && theirs === undefined) continue;
    if (theirs === undefined) return { kind: 'unknown' };
    if (made.kind !== 'prompt')
      return { kind: 'different', how: `our template does not express ${name}, the server's does` };
    const ours = promptIds(made.prompt);
    const at = ours.findIndex((token, i) => token !== theirs[i]);
    if (at >= 0 || ours.length !== theirs.length) {
      const where = at >= 0 ? at : ours.length;
      const lengths = `${ours.length} tokens here, ${theirs.length} there`;
      return {
        kind: 'different',
        how: `the prompt of ${name} has ${lengths}, and differs from token ${where} on (${ours[where] ?? 'end'} here, ${theirs[where] ?? 'end'} there)`,
      };
    }
    compared += 1;
  }
  return compared > 0 ? { kind: 'equal' } : { kind: 'unknown' };
}

/** As tokenizePrompt has it: a first token that the vocabulary wants is there once. */
function textOf(parts: PromptParts, messages: readonly ProbeMessage[]): string {
  const made = promptPieces(parts, { messages }, { addGenerationPrompt: true });
  const text = made.kind === 'pieces' ? made.pieces.join('') : '';
  const { bos, addBos } = parts.vocabulary;
  return addBos && bos && !text.startsWith(bos.text) ? bos.text + text : text;
}
