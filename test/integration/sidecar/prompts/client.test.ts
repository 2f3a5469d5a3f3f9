import { readFileSync, readlinkSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { systemClock, type Clock } from '../../../../sidecar/lib/clock.js';
import { PromptHostClient, type PromptHostOptions } from '../../../../sidecar/prompts/client.js';
import { received } from '../../../support/bodies.js';
import { childrenOf } from '../../../support/processes.js';
import type { Tokenized } from '../../../../sidecar/prompts/prompt-maker.js';
import type { StubBody } from '../../../support/prompt-worker.js';
import { tokenPrompt } from '../../../../engine/protocol/prompt.js';

const OWNER = { account: 'a', weight: 1 };

const STUB = fileURLToPath(new URL('../../../support/prompt-worker.js', import.meta.url));
const NEVER = new AbortController().signal;

/** A client with stub workers, and a folder for their files; closed after the test. */
function host(t: Test, options: Partial<PromptHostOptions> = {}) {
  const folder = t.testdir();
  const restarts: string[] = [];
  let onRestart: () => void = () => undefined;
  const restarted = new Promise<void>((resolve) => {
    onRestart = resolve;
  });
  const client = new PromptHostClient({
    name: 'short',
    models: [{ id: 'm', kind: 'chat', file: 'none', contextPerSeat: 100 }],
    workers: 1,
    silenceMs: 30_000,
    maxQueued: 10,
    inlineBytes: 0,
    clock: systemClock,
    workerFile: STUB,
    hooks: {
      restart: (why) => {
        restarts.push(why);
        onRestart();
      },
    },
    ...options,
  });
  // Between two hosts only the clock’s timer is pending, which does not keep a process alive.
  const alive = setInterval(() => undefined, 60_000);
  t.teardown(() => {
    clearInterval(alive);
    client.close();
  });
  const log = join(folder, 'log');
  const file = (name: string) => join(folder, name);
  const send = (name: string, what: StubBody['do'], until?: string, signal = NEVER): Promise<Tokenized> => {
    const body: StubBody = { name, do: what, log, ...(until === undefined ? {} : { until: file(until) }) };
    const prompt = client.open('chat', received(Buffer.from(JSON.stringify(body))), OWNER);
    return prompt.tokenize(signal).finally(() => prompt.close());
  };
  return {
    client,
    restarts,
    restarted,
    send,
    make: (name: string) => writeFile(file(name), ''),
    runs: async () => (await readFile(log, 'utf8')).trim().split('\n'),
    /** Other processes write the log without an event, so it is polled. */
    logged: async (line: string) => {
      for (let tries = 0; tries < 12_000; tries++) {
        if ((await readFile(log, 'utf8').catch(() => '')).includes(`${line}\n`)) return;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      throw new Error(`never logged: ${line}`);
    },
  };
}

t.test(
  'a host gets nothing of the environment but what every program needs, and what it prints goes nowhere',
  async (t) => {
    process.env['RA_TEST_SECRET'] = 'hidden';
    t.teardown(() => Reflect.deleteProperty(process.env, 'RA_TEST_SECRET'));
    const before = new Set(childrenOf(process.pid).map(({ pid }) => pid));
    const { client } = host(t, { workers: 0 });
    t.equal((await client.ready()).kind, 'ready');
    const [pid] = childrenOf(process.pid).flatMap((child) => (before.has(child.pid) ? [] : [child.pid]));
    const variables = readFileSync(`/proc/${String(pid)}/environ`, 'utf8')
      .split('\0')
      .filter(Boolean);
    const names = variables.map((text) => text.split('=', 1)[0] ?? '');
    // The last one is Node's own, of a run that measures coverage.
    const allowed = ['HOME', 'PATH', 'LD_LIBRARY_PATH', 'TMPDIR', 'TZ', 'LANG', 'NODE_V8_COVERAGE'];
    t.strictSame(
      names.filter((name) => !allowed.includes(name)),
      [],
    );
    t.match(readlinkSync(`/proc/${String(pid)}/fd/2`), /^(?:pipe|socket):/);
    t.not(readlinkSync(`/proc/${String(pid)}/fd/2`), readlinkSync('/proc/self/fd/2'));
  },
);

for (const workers of [0, 1]) {
  const where = workers === 0 ? 'in the host’s own thread' : 'in a worker';

  t.test(`an item is answered, and one that throws fails alone, ${where}`, async (t) => {
    const { client, send, restarts } = host(t, { workers });
    t.same(await client.ready(), { kind: 'ready', models: [{ id: 'm', tools: false, system: true }] });
    t.same(await send('abc', 'answer'), { kind: 'chat', prompt: tokenPrompt(Uint32Array.of(3)) });
    t.match(await send('x', 'throw'), {
      kind: 'failed',
      reason: 'thrown',
      fault: { name: 'Error', message: undefined, stack: [/prompt-worker/] },
    });
    t.same(await send('ab', 'answer'), { kind: 'chat', prompt: tokenPrompt(Uint32Array.of(2)) });
    t.same(restarts, []);
  });

  t.test(
    `the item that ends the host fails and is not retried; waiting ones are answered by the next host, ${where}`,
    async (t) => {
      const { client, send, runs, restarts } = host(t, { workers });
      const [killer, waiting] = await Promise.all([send('killer', 'die'), send('waiting', 'answer')]);
      t.same(killer, { kind: 'failed', reason: 'died' });
      t.match(waiting, { kind: 'chat' });
      t.same(await runs(), ['killer start', 'waiting start', 'waiting end']);
      t.same(restarts, ['died']);
      t.same(client.stats(), { queued: 0, running: 0, restarts: 1, up: true });
    },
  );
}

t.test(
  'a hanging item blocks a host’s own thread: it fails after silenceMs, and the one behind it does not',
  async (t) => {
    const { send, runs, restarts } = host(t, { workers: 0, silenceMs: 1000 });
    const hung = send('hung', 'hang');
    const behind = send('behind', 'answer');
    t.same(await hung, { kind: 'failed', reason: 'silent' });
    t.match(await behind, { kind: 'chat' });
    t.same(restarts, ['silent']);
    t.same(await runs(), ['hung start', 'behind start', 'behind end']);
  },
);

t.test('a hanging item fails after silenceMs and the host is killed; the one beside it is retried', async (t) => {
  const waits: number[] = [];
  const clock: Clock = {
    now: () => systemClock.now(),
    after: (ms, run) => {
      waits.push(ms);
      return systemClock.after(ms, run);
    },
  };
  const { send, runs, restarts, logged, make, restarted } = host(t, { workers: 2, silenceMs: 1000, clock });
  const hung = send('hung', 'hang');
  await logged('hung start');
  const beside = send('beside', 'wait', 'go');
  t.same(await hung, { kind: 'failed', reason: 'silent' });
  // Of the two items; before them it is the limit of the host’s start, after them those of its end and the wait for the next.
  t.ok(
    waits.slice(1, 3).every((ms) => ms >= 1000 && ms < 2000),
    `it waited for ${waits.join()} ms`,
  );
  await restarted;
  await make('go');
  t.match(await beside, { kind: 'chat' });
  t.same(restarts, ['silent']);
  t.same((await runs()).filter((line) => line === 'hung start').length, 1, 'it is not tried again');
});

for (const workers of [0, 1])
  t.test(
    `an item that is cancelled while it waits, in the host or here, never runs, workers: ${workers}`,
    async (t) => {
      const { client, send, runs, make, logged } = host(t, { workers });
      const running = send('running', 'wait', 'go');
      await logged('running start');
      const ahead = send('ahead', 'answer');
      const controller = new AbortController();
      const waiting = ['sent', 'sent', 'here', 'here'].map((name) =>
        send(name, 'answer', undefined, controller.signal),
      );
      // An item of this account is expected to take half a millisecond at first, so the own thread has three more by now.
      t.equal(client.stats().queued, workers === 0 ? 2 : 5);
      controller.abort();
      for (const item of waiting) t.same(await item, { kind: 'aborted' });
      t.equal(client.stats().queued, workers === 0 ? 0 : 1, 'its place is free');
      await make('go');
      t.match(await running, { kind: 'chat' });
      t.match(await ahead, { kind: 'chat' });
      t.match(await send('last', 'answer'), { kind: 'chat' });
      t.same(await runs(), ['running start', 'running end', 'ahead start', 'ahead end', 'last start', 'last end']);
    },
  );

t.test('an item that is cancelled while it runs settles at once, and its result is ignored', async (t) => {
  const { client, send, make, logged } = host(t);
  const controller = new AbortController();
  const running = send('running', 'wait', 'go', controller.signal);
  await logged('running start');
  controller.abort();
  t.same(await running, { kind: 'aborted' });
  t.equal(client.stats().running, 1, 'the worker still runs it');
  await make('go');
  t.match(await send('next', 'answer'), { kind: 'chat' });
  t.same(
    await send('late', 'answer', undefined, controller.signal),
    { kind: 'aborted' },
    'aborted before it was asked',
  );
});

for (const [file, reason] of [
  ['fatal', 'start'],
  ['garbled', 'protocol'],
] as const)
  t.test(`a host that cannot start makes no caller wait: ${reason}`, async (t) => {
    const models = [{ id: 'm', kind: 'chat', file, contextPerSeat: 1 }] as const;
    const { client, send, restarts } = host(t, { models, workers: 0 });
    const waiting = send('waiting', 'answer');
    t.same(await client.ready(), { kind: 'unable' });
    const retryLater = { kind: 'refused', error: { code: 'cold', status: 503, retryAfterMs: Number } };
    t.match(await waiting, retryLater);
    t.match(await send('next', 'answer'), retryLater, 'at once, until a host is ready');
    t.equal(restarts[0], reason);
    t.match(client.stats(), { up: false, problem: reason });
  });

t.test('a host that breaks the protocol is restarted, and the item that ran fails', async (t) => {
  const { send, restarts } = host(t, { workers: 0 });
  t.same(await send('garbling', 'garble'), { kind: 'failed', reason: 'protocol' });
  t.match(await send('next', 'answer'), { kind: 'chat' });
  t.same(restarts, ['protocol']);
});

t.test('close ends the host and fails its items, at any time', async (t) => {
  const early = host(t);
  const waiting = early.send('waiting', 'answer');
  early.client.close();
  early.client.close();
  t.same(await waiting, { kind: 'failed', reason: 'closed' });
  t.same(await early.client.ready(), { kind: 'unable' });
  const late = host(t);
  const running = late.send('running', 'hang');
  await late.logged('running start');
  late.client.close();
  t.same(await running, { kind: 'failed', reason: 'closed' });
  t.same(await late.send('after', 'answer'), { kind: 'failed', reason: 'closed' });
  t.same(late.restarts, []);
});
