import t from 'tap';
import { choose, COPY_TOKENS, type Slot } from '../../../engine/scheduler/sequences.js';
import { SequenceTokens } from '../../../engine/scheduler/state-store.js';
import { PromptPlan } from '../../../engine/scheduler/prompt-plan.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const KEY = { weights: '', kv: 'f16', scope: ALL_ACCOUNTS } as const;

const PROMPT = Uint32Array.from({ length: 1000 }, (_, i) => i + 1);
const plan = new PromptPlan(tokenPrompt(PROMPT), 256, KEY);

/** `shares` leading tokens of the prompt, and one of another; null: empty. */
function slot(shares: number | null, live = false, usedAt = 0): Slot {
  const tokens = new SequenceTokens();
  tokens.keepFor(plan, 0);
  if (shares !== null) {
    tokens.append(PROMPT.subarray(0, shares), false);
    tokens.append(Uint32Array.of(0), false);
  }
  return { tokens, live, usedAt };
}

const [LIVE, FREE] = [true, false];
const any = { reuse: () => 'any' as const, copyable: false };
const copying = { ...any, copyable: true };

t.test('the longest prefix wins, and is used in place if its sequence is free', async (t) => {
  t.same(choose([slot(null), slot(300), slot(500)], plan, any), { sequence: 2, keep: 500 });
  t.same(choose([slot(null), slot(300), slot(500)], plan, copying), { sequence: 2, keep: 500 });
});

t.test('without a shared prefix: an empty one, then the least recently used, then the lowest', async (t) => {
  t.match(choose([slot(0), slot(null), slot(null)], plan, any), { sequence: 1 });
  t.match(choose([slot(0, FREE, 3), slot(0, FREE, 1), slot(0, FREE, 2)], plan, any), { sequence: 1 });
  t.match(choose([slot(0), slot(0)], plan, any), { sequence: 0 });
  t.equal(choose([slot(0, LIVE), slot(0, LIVE)], plan, any), undefined);
});

t.test('a few tokens that every prompt begins with do not overwrite a conversation', async (t) => {
  /** Shares that many tokens, and has as many of its own conversation. */
  const talk = (shares: number, own: number, usedAt = 0): Slot => {
    const made = slot(shares, FREE, usedAt);
    made.tokens.append(new Uint32Array(own), false);
    return made;
  };
  t.match(choose([talk(7, 400), slot(null), talk(63, 400)], plan, any), { sequence: 1 });
  t.same(choose([talk(7, 400, 2), talk(63, 400, 1)], plan, any), { sequence: 1, keep: 63 }, 'but are kept');
  t.same(choose([talk(7, 400), slot(null), talk(64, 400)], plan, any), { sequence: 2, keep: 64 }, 'more are worth it');
  t.same(choose([talk(30, 20), slot(null)], plan, any), { sequence: 0, keep: 30 }, 'a short conversation continues');
});

t.test('a sequence that is kept for a session is overwritten only if no other is free', async (t) => {
  const of = (session: number, shares: number | null, usedAt = 0): Slot => ({ ...slot(shares, FREE, usedAt), session });
  const kept = [1, 2];
  t.match(choose([of(1, 600), of(3, 0)], plan, { ...any, kept }), { sequence: 1, keep: 0 });
  t.same(
    choose([of(1, 600), of(3, 0)], plan, { ...copying, kept }),
    { sequence: 1, source: 0, keep: 600 },
    'it is copied from',
  );
  t.match(choose([of(1, 600), of(3, 0)], plan, { ...any, kept: [2] }), { sequence: 0, keep: 600 }, 'not kept any more');
  t.match(choose([of(1, 0, 2), of(2, 0, 1)], plan, { ...any, kept }), { sequence: 1 });
});

t.test('live ids stay contiguous unless the prefix is worth the gap', async (t) => {
  const beside = (shares: number): Slot[] => [slot(0, LIVE), slot(null), slot(null), slot(shares)];
  t.match(choose(beside(100), plan, any), { sequence: 1, keep: 0 });
  t.match(choose(beside(600), plan, any), { sequence: 3, keep: 600 });
  t.match(choose([slot(0, LIVE), slot(0), slot(0, LIVE), slot(null)], plan, any), { sequence: 1 }, 'a gap is closed');
});

t.test('a prefix in another sequence is copied if that saves more than it costs', async (t) => {
  const used = (shares: number): Slot[] => [slot(shares, LIVE), slot(null), slot(30)];
  t.same(choose(used(500), plan, copying), { sequence: 1, source: 0, keep: 500 });
  t.same(choose(used(500), plan, any), { sequence: 1, keep: 0 });
  t.same(choose(used(COPY_TOKENS), plan, copying), { sequence: 1, keep: 0 });
  t.same(choose(used(COPY_TOKENS + 1), plan, copying), { sequence: 1, source: 0, keep: COPY_TOKENS + 1 });
  const apart = [slot(0, LIVE), slot(null), slot(null), slot(900)];
  t.same(choose(apart, plan, copying), { sequence: 1, source: 3, keep: 900 }, 'rather than open a gap');
});

t.test('each sequence gives only what its rule allows', async (t) => {
  const rules = { reuse: (id: number) => (id === 0 ? ('any' as const) : ('none' as const)), copyable: true };
  t.same(choose([slot(200, LIVE), slot(null), slot(900)], plan, rules), { sequence: 1, source: 0, keep: 200 });
});

t.test('replies that skip steps leave no gaps between the others', async (t) => {
  const rules = { ...any, intermittent: true };
  const out = { ...slot(null, LIVE), intermittent: true };
  t.match(choose([slot(null, LIVE), slot(null), slot(null)], plan, rules), { sequence: 2 }, 'from the last id down');
  t.match(choose([slot(null, LIVE), slot(null), slot(null), out], plan, rules), { sequence: 2 });
  t.match(choose([slot(null, LIVE), slot(null), slot(null), out], plan, any), { sequence: 1 });
  t.match(
    choose([slot(null), slot(null), slot(null), out], plan, any),
    { sequence: 0 },
    'which are next to none of them',
  );
  t.match(choose([slot(700), slot(null), slot(null)], plan, rules), { sequence: 0 }, 'unless a prefix is worth it');
});
