import type { Vocabulary } from '../../engine/prompt/tokens.js';

/**
 * A vocabulary whose ordinary tokens are UTF-16 code units, with a few words as single tokens from 100,000 on and
 * special texts from 200,000 on. Like llama.cpp it parses special texts as tokens only on request.
 */
export function fakeVocabulary(
  options: {
    words?: readonly string[];
    specials?: readonly string[];
    bos?: string;
    addBos?: boolean;
    pairTemplate?: string;
  } = {},
): Vocabulary {
  const words = options.words ?? [];
  const specials = options.specials ?? [];
  const bos = options.bos;
  return {
    tokenize(text, special) {
      const tokens: number[] = [];
      for (let at = 0; at < text.length;) {
        const marker = special ? specials.findIndex((own) => text.startsWith(own, at)) : -1;
        const word = words.findIndex((own) => text.startsWith(own, at));
        if (marker >= 0) tokens.push(200_000 + marker);
        else if (word >= 0) tokens.push(100_000 + word);
        else tokens.push(text.charCodeAt(at));
        at += (marker >= 0 ? specials[marker] : word >= 0 ? words[word] : undefined)?.length ?? 1;
      }
      return Uint32Array.from(tokens);
    },
    hash: 'fake',
    chatTemplate: undefined,
    toolTemplate: undefined,
    bos: bos === undefined ? undefined : { token: 200_000 + specials.indexOf(bos), text: bos },
    eosText: '',
    addBos: options.addBos ?? false,
    marks: {
      before: [1],
      after: [2],
      pair: { before: [1], between: [2, 3], after: [2] },
      pairTemplate: options.pairTemplate,
    },
    specialTexts: specials,
    size: 300_000,
    width: 4,
    longestTokenBytes: 16,
    calibration: undefined,
    dispose: () => Promise.resolve(),
  };
}
