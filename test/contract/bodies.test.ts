/** The memory of request bodies (`bodies.totalBytes`): which requests count, and until when. */
import { setImmediate as turn } from 'node:timers/promises';
import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { fullCollector } from '../support/grown-old.js';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';

const CHAT = '/v1/chat/completions';
const MIB = 1024 * 1024;
/** Longer than `bodies.inlineBytes`: such bodies are read by a separate prompt host. */
const LONG = 64 * 1024;

t.test('a request that waits for a seat uses no body memory', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'narrow', kind: 'chat', seats: 1 },
      { id: 'chat', kind: 'chat' },
    ],
    config: {
      bodies: { chatBytes: 2 * MIB, totalBytes: 3 * MIB, shortBytes: 0 },
      prompts: { workers: 1 },
      queue: PATIENT_QUEUE,
    },
  });
  const send = async (model: string, act: 'hold' | 'echo', bytes: number): ReturnType<InProcess['connect']> => {
    const caller = await sidecar.connect();
    const pad = ' '.repeat(bytes - 1000);
    return caller.request('POST', CHAT, JSON_HEADERS, `${JSON.stringify(chatBody(model, act))}${pad}`);
  };
  const running = await sidecar.begin(CHAT, chatBody('narrow', 'hold'));
  await sidecar.until('ra_sidecar_seats_busy{model="narrow"}', 1);
  const waiting = await send('narrow', 'hold', 2 * MIB);
  await sidecar.until('ra_sidecar_waiting_requests{model="narrow",class="standard"}', 1);
  // Long prompts are tokenized in their order of arrival: when this one is tokenized, so is the waiting one.
  const behind = await send('chat', 'echo', LONG);
  t.equal((await behind.response()).status, 200);
  const other = await send('chat', 'echo', 2 * MIB);
  t.equal((await other.response()).status, 200, 'there is room for another');
  running.close();
  waiting.close();
});

t.test('running streams keep neither their bodies, which may be padded with spaces, nor their prompts', async (t) => {
  const STREAMS = 4;
  /** At least as many tokens, in four bytes each. */
  const WORDS = 60_000;
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'chat', kind: 'chat', seats: STREAMS, contextPerSeat: 1_000_000 }],
    config: { prompts: { workers: 1 } },
  });
  const collect = fullCollector();
  const kept = async (): Promise<number> => {
    // What a turn of the event loop has on its stack is not kept.
    for (let turns = 0; turns < 3; turns += 1) {
      await turn();
      collect();
    }
    return process.memoryUsage().arrayBuffers;
  };
  const stream = async (): Promise<void> => {
    const caller = await sidecar.connect();
    const messages = [{ role: 'user', content: 'tick '.repeat(WORDS) }];
    const text = JSON.stringify(chatBody('chat', 'begun', { stream: true, messages }));
    caller.request('POST', CHAT, JSON_HEADERS, text + ' '.repeat(4 * MIB));
    await caller.until('"content":"');
  };
  const before = await kept();
  for (let streams = 0; streams < STREAMS; streams += 1) await stream();
  const grown = (await kept()) - before;
  t.ok(grown < 4 * WORDS, `${grown} bytes are kept`);
});
