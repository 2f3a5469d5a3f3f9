/** What the queue learns from chats about how fast the replicas are. */
import t from 'tap';
import { ChatHarness } from '../../support/chat-harness.js';

const AT_ONCE = { authorize: 0, check: 0, tokenize: 0 };

/** Plays a chat: so many tokens after the first one, each of which takes `tokenMs`. */
async function reply(harness: ChatHarness, chat: number, tokens: number, tokenMs: number): Promise<void> {
  const job = (await harness.engine.generation(chat)).started().pieces('a');
  for (let i = 0; i < tokens; i += 1) {
    harness.clock.advance(tokenMs);
    job.pieces('b');
  }
}

/** The replicas of chats, one after the other, with replies of so many tokens that take so long on each replica. */
async function placed(chats: number, tokens: number, tokenMs: readonly [number, number]): Promise<readonly number[]> {
  const harness = new ChatHarness([2, 2]);
  const { engine } = harness;
  for (let chat = 0; chat < chats; chat += 1) {
    const replied = harness.ask(AT_ONCE);
    const job = await engine.generation(chat);
    await reply(harness, chat, tokens, tokenMs[engine.placed[chat] ?? 0] ?? NaN);
    job.finished().done();
    await replied;
  }
  return engine.placed;
}

for (const [what, tokens, tokenMs] of [
  ['short replies', 8, [300, 100]],
  ['long replies on fast devices', 320, [0.3, 0.1]],
] as const)
  t.test(`chats go to the replica whose tokens take less time: ${what}`, async (t) => {
    const replicas = await placed(60, tokens, tokenMs);
    t.strictSame(replicas.slice(0, 2), [0, 1], 'at first in turn');
    t.strictSame(replicas.slice(-8), [1, 1, 1, 1, 1, 1, 1, 1]);
  });

for (const [why, tokens, tokenMs] of [
  ['few tokens do not show how fast it is', 7, [300, 100]],
  ['neither do tokens that come together', 9, [1, 0.1]],
] as const)
  t.test(`chats go to each replica in turn: ${why}`, async (t) => {
    t.strictSame((await placed(60, tokens, tokenMs)).slice(-8), [0, 1, 0, 1, 0, 1, 0, 1]);
  });

t.test('a reply shows how fast its replica is while it goes on', async (t) => {
  const harness = new ChatHarness([2, 2]);
  const asked = [harness.ask(AT_ONCE), harness.ask(AT_ONCE)];
  for (const [chat, tokenMs] of [300, 100].entries()) await reply(harness, chat, 320, tokenMs);
  asked.push(harness.ask(AT_ONCE));
  await harness.engine.generation(2);
  t.strictSame(harness.engine.placed, [0, 1, 1]);
  for (const job of harness.engine.generations) job.started().finished().done();
  await Promise.all(asked);
});

t.test('requests wait in the queue while their model loads', async (t) => {
  const harness = new ChatHarness();
  const { engine, queue } = harness;
  engine.state = 'cold';
  engine.facts = undefined;
  engine.readyInMs = 5000;
  queue.pause();
  const [served, late] = [harness.ask(AT_ONCE), harness.ask(AT_ONCE)];
  await new Promise((resolve) => setImmediate(resolve));
  t.match(queue.snapshot(), { waiting: 2 });
  harness.clock.advance(9999);
  engine.state = 'ready';
  queue.resume(1);
  const job = await engine.generation(0);
  t.equal(engine.generations.length, 1);
  engine.state = 'cold';
  harness.clock.advance(1);
  t.match(await late, { status: 503 }, 'the longest wait: the model is cold, not its queue full');
  job.started().pieces('a').finished().done();
  t.match(await served, { status: 200 });
  engine.readyInMs = 5000;
  queue.pause();
  const [hopeful, wanting] = [harness.ask(AT_ONCE), harness.ask(AT_ONCE)];
  await new Promise((resolve) => setImmediate(resolve));
  engine.state = 'unloaded';
  queue.refuseUnserved();
  for (const asked of [hopeful, wanting])
    t.match(await asked, { status: 503 }, 'a load that failed ends the wait at once');
  t.equal(queue.snapshot().refused['no-engine'], 2);
  engine.state = 'cold';
  engine.readyInMs = 10_001;
  t.match(await harness.ask(AT_ONCE), { status: 503 }, 'a load that takes longer is not waited for');
  t.match(queue.snapshot(), { waiting: 0 });
});
