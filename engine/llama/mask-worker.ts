/** The thread that computes which tokens a grammar allows next (masks.ts). One request at a time. */
import { parentPort, workerData } from 'node:worker_threads';
import { MaskGrammar, type Standing, sortedTokens } from '../grammar/mask.js';
import { MAX_IDLE, MAX_PROGRAMS } from '../grammar/mask-memory.js';
import type { MaskAnswer, MaskRequest, MaskVocabulary } from './masks.js';

/** Places of a grammar that one answer may look at: 1 to 2 s. Grammars that are made here take a tenth at most. */
const MAX_WORK = 20_000_000;

interface Used {
  readonly grammar: MaskGrammar;
  replies: number;
}

const { bytes, starts, ends } = workerData as MaskVocabulary;
const tokens = sortedTokens(bytes, starts, ends);
/** By their text; the one used last is last. */
const grammars = new Map<string, Used>();
const replies = new Map<number, { readonly gbnf: string; readonly used: Used; standing: Standing }>();

function use(gbnf: string): Used | undefined {
  const known = grammars.get(gbnf);
  const grammar = known?.grammar ?? MaskGrammar.of(gbnf, tokens, { work: MAX_WORK, share: () => 1 / grammars.size });
  const used = known ?? (grammar && { grammar, replies: 0 });
  grammars.delete(gbnf);
  if (!used) return undefined;
  grammars.set(gbnf, used);
  if (!known) for (const each of grammars.values()) each.grammar.fit();
  return used;
}

function release(id: number): void {
  const reply = replies.get(id);
  if (!reply) return;
  replies.delete(id);
  reply.used.replies -= 1;
  let idle = 0;
  let programs = 0;
  for (const [gbnf, { replies: uses, grammar }] of [...grammars].reverse()) {
    if (uses > 0) continue;
    idle += 1;
    programs += grammar.programBytes;
    if (idle > MAX_IDLE || programs > MAX_PROGRAMS) grammars.delete(gbnf);
  }
}

function answer({ id, gbnf, read }: Extract<MaskRequest, { kind: 'next' }>): MaskAnswer {
  try {
    if (gbnf !== undefined) {
      const used = use(gbnf);
      if (!used) return { kind: 'fault', reason: 'the grammar cannot be used' };
      used.replies += 1;
      replies.set(id, { gbnf, used, standing: used.grammar.start });
    }
    const reply = replies.get(id);
    if (!reply) return { kind: 'fault', reason: 'the grammar is not known' };
    const { grammar } = reply.used;
    for (const token of read) {
      const next = grammar.after(reply.standing, token);
      if (!next) return { kind: 'fault', reason: 'the grammar does not allow the token' };
      reply.standing = next;
    }
    return { kind: 'mask', made: grammar.made(reply.standing) };
  } catch (error) {
    // Any other message would contain the grammar's text.
    const reason =
      error instanceof Error && error.name === 'GrammarTooExpensive' ? 'the grammar takes too much work' : 'unknown';
    return { kind: 'fault', reason };
  }
}

parentPort?.on('message', (request: MaskRequest) => {
  if (request.kind === 'release') release(request.id);
  else parentPort?.postMessage(answer(request));
});
