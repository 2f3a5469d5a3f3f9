/** What the queue learns from chats about how fast the replicas are. */
import t from 'tap';
import { ChatHarness } from '../../support/chat-harness.js';

const AT_ONCE = { authorize: 0, check: 0, tokenize: 0 };

/** A reply of so many tokens after its first one, each of which takes `tokenMs`. */
async function reply(harness: ChatHarness, chat: number, tokens: number, tokenMs: number): Promise<void> {
  const job = (await harness.engine.generation(chat)).started().pieces('a');
  for (let i = 0; i < tokens; i += 1) {
    harness.clock.advance(tokenMs);
    job.pieces('b');
  }
  job.finished().done();
}

for (const [title, tokens, third] of [
  ['the next chat goes to the replica whose tokens take less time', 8, 1],
  ['a reply of few tokens does not say how fast its replica is', 7, 0],
] as const) {
  t.test(title, async (t) => {
    const harness = new ChatHarness([2, 2]);
    for (const [chat, tokenMs] of [30, 10].entries()) {
      const replied = harness.ask(AT_ONCE);
      await reply(harness, chat, tokens, tokenMs);
      t.equal((await replied).status, 200);
    }
    void harness.ask(AT_ONCE);
    await harness.engine.generation(2);
    t.strictSame(harness.engine.placed, [0, 1, third]);
  });
}
