import t from 'tap';
import type { Checkpoint, SequenceStates } from '../../../engine/scheduler/decoder.js';
import { EngineFault } from '../../../engine/scheduler/faults.js';
import { PromptPlan } from '../../../engine/scheduler/prompt-plan.js';
import { Sequences } from '../../../engine/scheduler/sequences.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';

const KEY = { scope: ALL_ACCOUNTS, weights: '', kv: 'f16' } as const;
const PROMPT = Uint32Array.from({ length: 40 }, (_, i) => i);

interface Fake extends Pick<SequenceStates, 'truncatable' | 'copyable' | 'truncate' | 'copy'> {
  readonly save: (sequence: number) => Promise<Checkpoint>;
  readonly restore: (sequence: number, checkpoint: Checkpoint) => Promise<void>;
  readonly calls: string[];
  readonly failing: Set<string>;
  /** The tokens of each sequence. */
  readonly lengths: number[];
}

/** A decoder that cannot truncate, with two sequences; what was called, and what fails next. */
function stateDecoder(): Fake {
  const calls: string[] = [];
  const failing = new Set<string>();
  const call = async (what: string, words: string): Promise<void> => {
    calls.push(words);
    if (failing.delete(what)) throw new EngineFault('refused');
  };
  const lengths = [0, 0];
  return {
    calls,
    failing,
    lengths,
    truncatable: false,
    copyable: true,
    truncate: async (sequence: number, length: number): Promise<void> => {
      if (length > 0 && length < (lengths[sequence] ?? 0)) throw new EngineFault('cannot be truncated');
      if (length === 0) await call('empty', `empty ${sequence}`);
      lengths[sequence] = Math.min(length, lengths[sequence] ?? 0);
    },
    copy: async (target: number, source: number): Promise<void> => {
      await call('copy', `copy ${target} ${source}`);
      lengths[target] = lengths[source] ?? 0;
    },
    save: async (sequence: number): Promise<Checkpoint> => {
      const length = lengths[sequence] ?? 0;
      await call('save', `save ${sequence} ${length}`);
      return { length, bytes: 10, dispose: () => void calls.push(`dispose ${length}`) };
    },
    restore: async (sequence: number, { length }: Checkpoint): Promise<void> => {
      await call('restore', `restore ${sequence} ${length}`);
      lengths[sequence] = length;
    },
  };
}

const plan = (length: number): PromptPlan =>
  new PromptPlan(tokenPrompt(PROMPT.subarray(0, length)), 8, KEY, { upTo: length - 1, exactly: true });

/** A sequence that was saved at 16 tokens and has 24, and is free again. */
async function held(bytes = 1000): Promise<{ decoder: Fake; sequences: Sequences }> {
  const decoder = stateDecoder();
  const sequences = new Sequences(decoder, 2, { checkpointBytes: bytes });
  await sequences.open(plan(24), () => 'any');
  for (const [from, to] of [
    [0, 16],
    [16, 24],
  ] as const) {
    sequences.evaluated(0, PROMPT.subarray(from, to), true);
    decoder.lengths[0] = to;
    if (to === 16) await sequences.save(0);
  }
  sequences.free(0);
  decoder.calls.length = 0;
  return { decoder, sequences };
}

t.test('a prompt that continues the held tokens needs no checkpoint; one that differs restores one', async (t) => {
  const longer = await held();
  t.same(await longer.sequences.open(plan(30), () => 'any'), { sequence: 0, keep: 24 });
  t.same(longer.decoder.calls, []);
  const shorter = await held();
  t.same(await shorter.sequences.open(plan(20), () => 'any'), { sequence: 0, keep: 16 });
  t.same(shorter.decoder.calls, ['restore 0 16']);
});

t.test('a failed restore empties that sequence, and the prompt is evaluated again', async (t) => {
  const { decoder, sequences } = await held();
  decoder.failing.add('restore');
  t.same(await sequences.open(plan(20), () => 'any'), { sequence: 0, keep: 0 });
  t.same(decoder.calls, ['restore 0 16', 'dispose 16', 'empty 0']);
  t.equal(decoder.lengths[0], 0);
  t.same(sequences.tokens, { running: 0, kept: 0 });
});

t.test('a failed save leaves nothing to reuse', async (t) => {
  const { decoder, sequences } = await held();
  await sequences.open(plan(30), () => 'any');
  decoder.failing.add('save');
  await t.rejects(sequences.save(0));
  sequences.free(0);
  t.same(await sequences.open(plan(30), () => 'any'), { sequence: 0, keep: 0 });
});

t.test('without room nothing is saved', async (t) => {
  const { decoder, sequences } = await held(0);
  t.same(await sequences.open(plan(20), () => 'any'), { sequence: 1, keep: 0 }, 'and the held tokens are kept');
  t.same(decoder.calls, ['empty 1']);
});
