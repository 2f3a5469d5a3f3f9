import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../sidecar/lib/clock.js';
import type { Lane } from '../../../../sidecar/prompts/client.js';
import { PromptLanes, type PromptLanesOptions } from '../../../../sidecar/prompts/lanes.js';
import { received } from '../../../support/bodies.js';
import { childrenOf } from '../../../support/processes.js';
import { bundleTemplate, bundleVocabulary } from '../../../support/prompt-models.js';
import type { StubBody } from '../../../support/prompt-worker.js';

const OWNER = { account: 'a', weight: 1 };

const STUB = fileURLToPath(new URL('../../../support/prompt-worker.js', import.meta.url));
const NEVER = new AbortController().signal;
const SHORT_BYTES = 1000;

function lanesOf(t: Test, options: Partial<PromptLanesOptions> = {}) {
  const restarts: Lane[] = [];
  const lanes = new PromptLanes({
    models: [{ id: 'm', kind: 'chat', file: 'none', contextPerSeat: 100 }],
    workers: 1,
    silenceMs: 60_000,
    maxQueued: 10,
    inlineBytes: SHORT_BYTES,
    clock: systemClock,
    hooks: { restart: (_why, _delayMs, lane) => restarts.push(lane) },
    ...options,
  });
  // Between two hosts only the clock’s timer is pending, which does not keep a process alive.
  const alive = setInterval(() => undefined, 60_000);
  t.teardown(() => {
    clearInterval(alive);
    lanes.close();
  });
  return { lanes, restarts };
}

/** Lanes with stub workers. `send`: one body of the length that its lane accepts. */
function stubs(t: Test) {
  const { lanes, restarts } = lanesOf(t, { workerFile: STUB });
  const folder = t.testdir();
  const log = join(folder, 'log');
  appendFileSync(log, '');
  const until = join(folder, 'go');
  const send = (lane: Lane, what: StubBody['do']) => {
    const text = JSON.stringify({ name: lane, do: what, log, ...(what === 'wait' && { until }) } satisfies StubBody);
    const prompt = lanes.open(
      'chat',
      received(Buffer.from(lane === 'short' ? text : text.padEnd(SHORT_BYTES + 1))),
      OWNER,
    );
    return prompt.tokenize(NEVER).finally(() => prompt.close());
  };
  return { lanes, restarts, send, go: () => writeFileSync(until, '') };
}

t.test('short bodies are answered while the long lane is busy, and vice versa', async (t) => {
  for (const [slow, quick] of [
    ['long', 'short'],
    ['short', 'long'],
  ] as const) {
    const { lanes, send, go, restarts } = stubs(t);
    t.match(await lanes.ready(), { kind: 'ready', models: [{ id: 'm' }] });
    t.match(await send(slow, 'answer'), { kind: 'chat' }, 'its host has started');
    const busy = send(slow, 'wait');
    t.match(await send(quick, 'answer'), { kind: 'chat' });
    t.equal(lanes.states.find(({ lane }) => lane === slow)?.running, 1, 'it is still running');
    go();
    t.match(await busy, { kind: 'chat' });
    t.same(restarts, []);
  }
});

t.test('a lane whose host ends does not affect the other', async (t) => {
  const { lanes, send, go, restarts } = stubs(t);
  const short = send('short', 'wait');
  t.same(await send('long', 'die'), { kind: 'failed', reason: 'died' });
  go();
  t.match(await short, { kind: 'chat' });
  t.match(await send('long', 'answer'), { kind: 'chat' }, 'and comes back');
  t.same(restarts, ['long']);
  t.same(
    lanes.states.map(({ restarts }) => restarts),
    [0, 1],
  );
});

t.test('lanes whose hosts cannot start report that, and their items fail', async (t) => {
  const { lanes } = lanesOf(t, {
    workerFile: STUB,
    models: [{ id: 'm', kind: 'chat', file: 'fatal', contextPerSeat: 100 }],
  });
  t.same(await lanes.ready(), { kind: 'unable' });
});

/** Vocabularies, and the characters over which their regular expressions recurse. */
const DEEP = [
  ['deepseek-llm', 'a'],
  ['falcon', '!'],
] as const;

t.test('the longest short body does not end a host by the recursion of llama.cpp’s regular expressions', async (t) => {
  const template = await bundleTemplate('Qwen-Qwen2.5-7B-Instruct');
  // The maximum of bodies.inlineBytes.
  const inlineBytes = 64 * 1024;
  const models = await Promise.all(
    DEEP.map(async ([id]) => {
      return {
        id,
        kind: 'chat',
        file: await bundleVocabulary(id),
        contextPerSeat: 100_000,
        template: { chatTemplate: template },
      } as const;
    }),
  );
  const { lanes, restarts } = lanesOf(t, { inlineBytes, models, workers: 2 });
  for (const [model, character] of DEEP) {
    const body = (content: string) => JSON.stringify({ model, messages: [{ role: 'user', content }] });
    const prompt = lanes.open(
      'chat',
      received(Buffer.from(body(character.repeat(inlineBytes - body('').length)))),
      OWNER,
    );
    t.match(await prompt.tokenize(NEVER), { kind: 'chat' }, model);
  }
  t.same(restarts, []);
  t.strictSame(childrenOf(process.pid).length, 1, 'no long body has come');
  lanes.open('chat', received(Buffer.alloc(inlineBytes + 1)), OWNER).close();
  // A host has as many of V8's helper threads as it has threads that tokenize.
  const hosts = childrenOf(process.pid).map(({ command }) => command);
  for (const host of ['--v8-pool-size=1 .*host.js short( |$)', '--v8-pool-size=2 .*host.js long( |$)']) {
    t.ok(
      hosts.some((command) => new RegExp(host).test(command)),
      `${host}: ${hosts.join(', ')}`,
    );
  }
});
