import t from 'tap';
import { SequenceTokens } from '../../../engine/scheduler/state-store.js';
import { PromptPlan } from '../../../engine/scheduler/prompt-plan.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const KEY = { weights: '', kv: 'f16', scope: ALL_ACCOUNTS } as const;

const tokens = (length: number, from = 0): Uint32Array => Uint32Array.from({ length }, (_, i) => from + i);
const plan = (...segments: Uint32Array[]): PromptPlan => new PromptPlan(segments.flatMap(tokenPrompt), 8, KEY);

/** An empty one, opened for a prompt of the usual key. */
function taken(): SequenceTokens {
  const made = new SequenceTokens();
  made.keepFor(plan(tokens(1)), 0);
  return made;
}

/** Two whole chunks alone, four tokens with others, and two that were generated. */
function held(): SequenceTokens {
  const made = taken();
  made.append(tokens(8), true);
  made.append(tokens(8, 8), true);
  made.append(tokens(4, 16), false);
  made.append(Uint32Array.of(90), false);
  made.append(Uint32Array.of(91), false);
  return made;
}

t.test('the whole common prefix, but never the whole prompt', async (t) => {
  t.equal(held().reusable(plan(tokens(30)), 'any'), 20);
  t.equal(held().reusable(plan(Uint32Array.of(...tokens(20), 90, 5)), 'any'), 21);
  t.equal(held().reusable(plan(tokens(20)), 'any'), 19);
  t.equal(held().reusable(plan(tokens(5, 1)), 'any'), 0);
  t.equal(held().reusable(plan(tokens(30)), 'none'), 0);
});

t.test('of the same split only chunks that were evaluated alone and end where the plan’s end', async (t) => {
  t.equal(held().reusable(plan(tokens(30)), 'same-split'), 16);
  t.equal(held().reusable(plan(tokens(17)), 'same-split'), 16);
  t.equal(held().reusable(plan(tokens(16)), 'same-split'), 8, 'its last token must be evaluated');
  t.equal(held().reusable(plan(tokens(12), tokens(10, 12)), 'same-split'), 8, 'the plan ends a chunk at 12');
  t.equal(held().reusable(new PromptPlan(tokenPrompt(tokens(30)), 4, KEY), 'same-split'), 0);

  const split = taken();
  split.append(tokens(8), true);
  split.append(tokens(4, 8), true);
  t.equal(split.reusable(plan(tokens(12), tokens(10, 12)), 'same-split'), 12, 'an input with another tail');
  t.equal(split.reusable(plan(tokens(30)), 'same-split'), 8);
});

t.test('tokens after a shared decode have no split, nor has a chunk that was truncated', async (t) => {
  const mixed = taken();
  mixed.append(tokens(4), false);
  mixed.append(tokens(4, 4), true);
  mixed.append(tokens(8, 8), true);
  t.equal(mixed.reusable(plan(tokens(30)), 'same-split'), 0);

  const shorter = held();
  shorter.truncate(12);
  t.same([shorter.length, shorter.reusable(plan(tokens(30)), 'same-split')], [12, 8]);
  shorter.append(tokens(4, 12), true);
  t.equal(shorter.reusable(plan(tokens(30)), 'same-split'), 8, 'the rest of a chunk is no chunk');
  t.equal(shorter.reusable(plan(tokens(30)), 'any'), 16);
});

t.test('a copy is equal and then independent', async (t) => {
  const [source, target] = [held(), taken()];
  target.append(tokens(50, 100), true);
  target.become(source);
  t.same([...target.tokens], [...source.tokens]);
  target.truncate(8);
  t.equal(source.length, 22);
  t.equal(source.reusable(plan(tokens(30)), 'same-split'), 16);
  t.equal(target.reusable(plan(tokens(30)), 'same-split'), 8);
});

t.test('nothing is shared between keys, until the sequence is opened for the other key', async (t) => {
  for (const other of [{ weights: 'new' }, { scope: 'another account' }]) {
    const made = held();
    const theirs = new PromptPlan(tokenPrompt(tokens(30)), 8, { ...KEY, ...other });
    for (const reuse of ['any', 'same-split'] as const) t.equal(made.reusable(theirs, reuse), 0, JSON.stringify(other));
    t.equal(made.reusable(plan(tokens(30)), 'any'), 20);
    made.keepFor(theirs, 0);
    made.append(tokens(8), true);
    t.equal(made.reusable(theirs, 'any'), 8);
    t.equal(made.reusable(plan(tokens(30)), 'any'), 0);
    const copy = taken();
    copy.become(made);
    t.equal(copy.reusable(theirs, 'any'), 8, 'a copy has the key of its source');
  }
  t.equal(new SequenceTokens().reusable(plan(tokens(30)), 'any'), 0);
});
