/**
 * An engine that must end while it decodes. Without its sidecar it ends at once; otherwise the running step ends, no
 * other begins, and nothing that it uses is disposed.
 */
import { once } from 'node:events';
import t from 'tap';
import { ENGINE_EXIT, PROTOCOL_VERSION as v, type FromEngine, type ToEngine } from '../../engine/protocol/messages.js';
import { ENGINE_ENTRY, start } from '../support/engine-messages.js';
import { LinkedChild } from '../support/linked-child.js';
import { embeddedTestModel } from '../support/models.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const CONTEXT = 16_384;
const PROMPT = 8;

/** Continues to the context’s end because repetition is rewarded: longer than a shutdown takes on any machine. */
const LONG: ToEngine = {
  v,
  kind: 'generate',
  id: 1,
  job: {
    prompt: tokenPrompt(Uint32Array.from({ length: PROMPT }, (_, i) => 300 + i)),
    n: 1,
    seats: 1,
    maxTokens: CONTEXT - PROMPT,
    temperature: 0,
    topP: 1,
    frequencyPenalty: -2,
    presencePenalty: 0,
    seed: 1,
    stops: [],
    scope: ALL_ACCOUNTS,
  },
};

/** In the middle of a reply: some steps of it were reported. */
const PIECES = 3;

t.test('in the middle of a reply', async (t) => {
  const file = await embeddedTestModel();
  const ways = {
    'its sidecar has ended': [(child) => child.leave(), null, 'SIGKILL'],
    'it gets `shutdown`': [(child) => child.send({ v, kind: 'shutdown' }), ENGINE_EXIT.done, null],
    'it gets an unknown message': [(child) => child.send({ v, kind: 'dance' }), ENGINE_EXIT.protocol, null],
  } satisfies Record<string, [(child: LinkedChild) => void, number | null, string | null]>;
  for (const [name, [go, ...ended]] of Object.entries(ways)) {
    const child = new LinkedChild(ENGINE_ENTRY, 'ignore');
    const exit = once(child.process, 'exit');
    t.teardown(() => child.process.kill('SIGKILL'));
    let pieces = 0;
    let finished = false;
    child.on('message', (raw) => {
      const message = raw as FromEngine;
      if (message.kind === 'ready') child.send(LONG);
      if (message.kind !== 'step') return;
      finished ||= message.outputs.some(({ kind }) => kind === 'finished');
      pieces += message.outputs.filter(({ kind }) => kind === 'piece').length;
      if (pieces >= PIECES) go(child);
    });
    child.send(start(file, { contextPerSeat: CONTEXT }));
    t.strictSame(await exit, ended, name);
    t.notOk(finished, `${name}, and not because the reply had ended`);
  }
});
