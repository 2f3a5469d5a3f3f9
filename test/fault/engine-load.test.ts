/** What the engine reports of files that cannot be served: one clear line each, and never a hang. */
import { once } from 'node:events';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { checkModelFile } from '../../engine/llama/model-file.js';
import { ENGINE_EXIT, PROTOCOL_VERSION as v, type FromEngine, type ToEngine } from '../../engine/protocol/messages.js';
import { brokenModel, type Damage } from '../support/broken-models.js';
import { ENGINE_ENTRY, start } from '../support/engine-messages.js';
import { LinkedChild } from '../support/linked-child.js';
import { LONG } from '../support/long-form.js';
import { bundleCheckout, embeddedTestModel, testModel } from '../support/models.js';
import { threadCores } from '../support/processes.js';

interface End {
  readonly reason?: string;
  readonly mayMend?: boolean;
  readonly code: number | null;
  readonly signal: string | null;
}

/** An engine process that gets `messages`, until it ends or is ready. Killed with the test at the latest. */
async function run(t: Test, ...messages: unknown[]): Promise<End | 'ready'> {
  const child = new LinkedChild(ENGINE_ENTRY, 'ignore');
  const exit = once(child.process, 'exit') as Promise<[number | null, string | null]>;
  t.teardown(async () => {
    child.process.kill('SIGKILL');
    await exit;
  });
  let unable: { reason: string; mayMend: boolean } | undefined;
  const ready = new Promise<'ready'>((resolve) => {
    child.on('message', (raw) => {
      const message = raw as FromEngine;
      if (message.kind === 'ready') resolve('ready');
      if (message.kind === 'unable') unable = { reason: message.reason, mayMend: message.mayMend };
    });
  });
  for (const message of messages) child.send(message);
  return await Promise.race([ready, exit.then(([code, signal]) => ({ ...unable, code, signal }))]);
}

const unable = (reason: RegExp, mayMend = false): object => ({
  reason,
  mayMend,
  code: ENGINE_EXIT.unable,
  signal: null,
});

/** One case that the engine finds in a file’s head, and one that llama.cpp finds; the long form has all of them. */
const THROUGH_ENGINE: ReadonlySet<Damage> = new Set(['cut in the metadata', 'without a tokenizer']);

/** Problems that the head does not show. */
const OF_LLAMA: ReadonlySet<Damage> = new Set([
  'cut in the last tensor',
  'of an unknown architecture',
  'without a tensor',
  'with a tensor of a wrong shape',
  'with heads that do not fit its tensors',
  'without a tokenizer',
]);

t.test('damaged files', async (t) => {
  const cases: readonly (readonly [Damage, RegExp])[] = [
    ['empty', /^the file is no model: it has 0 bytes$/],
    ['garbage', /^the file is no GGUF model$/],
    ['cut in the header', /^the file is no model: it has 12 bytes$/],
    ['cut in the metadata', /^the file is damaged: its head counts more than the file can hold$/],
    ['cut in the tensor data', /^the file is cut off: it has \d+ bytes and a tensor at byte \d+/],
    ['cut in the last tensor', /tensor 'output.weight' data is not within the file bounds/],
    ['of another version', /^the file is of GGUF version 99/],
    ['with absurdly many tensors', /^the file is damaged: its head counts more than the file can hold$/],
    ['with absurdly many keys', /^the file is damaged: its head counts more than the file can hold$/],
    ['with a few keys too many', /^the file is (cut off or )?damaged: /],
    ['with an absurdly long key', /^the file is damaged: a name in its head is too long$/],
    ['with an absurdly long list', /^the file is damaged: its head counts more than the file can hold$/],
    ['with an unknown type of value', /^the file is damaged: it holds a value of a type/],
    ['of an unknown architecture', /does not know the architecture zzzzz$/],
    ['without a tensor', /missing tensor 'blk.1.attn_norm.weight'$/],
    ['with a tensor of a wrong shape', /tensor 'blk.1.attn_k.weight' has offset/],
    ['with a tensor beyond the file', /^the file is cut off: /],
    ['with heads that do not fit its tensors', /tensor 'blk.0.attn_k.weight' has wrong shape/],
    ['without a tokenizer', /key not found in model: tokenizer.ggml.model$/],
  ];
  const dir = t.testdir({});
  for (const [damage, reason] of cases) {
    const file = await brokenModel(dir, damage);
    const checked = checkModelFile(file);
    // The engine reads the head with this function before it loads anything.
    if (checked.kind === 'bad') t.match(checked.problem, reason, damage);
    if (LONG || THROUGH_ENGINE.has(damage)) t.match(await run(t, start(file)), unable(reason), damage);
    else t.equal(checked.kind === 'bad' || OF_LLAMA.has(damage), true, `${damage}: found in the head`);
  }
});

t.test('an assertion of llama.cpp ends the process', async (t) => {
  const dir = t.testdir({});
  for (const damage of ['with no heads', 'with absurdly many layers'] as const) {
    t.match(await run(t, start(await brokenModel(dir, damage))), { code: null, signal: 'SIGABRT' }, damage);
  }
});

t.test('paths that are no regular file, or not readable', async (t) => {
  const dir = t.testdir({ 'secret.gguf': 'x' });
  await mkdir(join(dir, 'folder.gguf'));
  t.match(await run(t, start(join(dir, 'folder.gguf'))), unable(/^the file is a folder$/));
  t.match(await run(t, start(join(dir, 'missing.gguf'))), unable(/^the file does not exist$/));
  t.match(await run(t, start(join(dir, 'secret.gguf', 'x'))), unable(/^the file does not exist$/));
  await chmod(join(dir, 'secret.gguf'), 0);
  // The superuser can read any file: then its content is refused.
  const refused = process.getuid?.() === 0 ? /^the file is no model/ : /^the file may not be read by this user$/;
  t.match(await run(t, start(join(dir, 'secret.gguf'))), unable(refused));
});

t.test('a vocabulary without weights', async (t) => {
  const file = join(await bundleCheckout(), 'models', 'ggml-vocab-gpt-2.gguf');
  t.match(await run(t, start(file)), unable(/^the file holds a vocabulary and no weights$/));
});

t.test('a context that exceeds any machine’s memory', async (t) => {
  const huge = { seats: 256, contextPerSeat: 1_048_576 };
  const file = await embeddedTestModel();
  t.match(
    await run(t, start(file, huge)),
    unable(
      /^it needs [\d.,]+ GiB of memory \(weights [\d.]+, KV [\d.,]+ for 256 seats of 1,048,576 tokens, compute [\d.]+, grammars [\d.]+\) and [\d.]+ GiB are free\. Fewer seats or a smaller context fit: at most \d+ seats?(, or [\d,]+ tokens for each of 256)?$/,
      true,
    ),
  );
  // A minute, since llama.cpp clears the memory page by page before an allocation fails.
  if (!LONG) return;
  const { memory: unchecked, ...setup } = (start(file, huge) as Extract<ToEngine, { kind: 'start' }>).setup;
  t.ok(unchecked);
  t.match(
    await run(t, { v, kind: 'start', setup }),
    unable(/^llama\.cpp cannot load it: .*(memory|allocate)/, true),
    'unchecked, llama.cpp itself cannot allocate it',
  );
});

t.test('cores that the engine cannot be kept on', async (t) => {
  const file = await embeddedTestModel();
  const [may = ''] = threadCores(process.pid);
  const [first = ''] = may.split(/[-,]/);
  t.match(
    await run(t, start(file, { cores: `${first},4095` })),
    unable(new RegExp(`^cores 4095 cannot be used here, ${may} can$`)),
  );
  t.match(
    await run(t, start(file, { cores: first, threads: 2 })),
    unable(new RegExp(`^on cores ${first} 2 compute threads would wait for each other: threads 0 is one for each$`)),
  );
  const { PATH: path = '' } = process.env;
  process.env['PATH'] = t.testdir({});
  t.teardown(() => (process.env['PATH'] = path));
  t.match(
    await run(t, start(file, { cores: first })),
    unable(new RegExp(`^the engine cannot be kept on cores ${first}: there is no taskset, which util-linux brings$`)),
  );
});

t.test('messages outside the protocol', async (t) => {
  const file = await testModel();
  const refused = { code: ENGINE_EXIT.protocol, signal: null };
  t.match(await run(t, { v, kind: 'dance' }), refused, 'an unknown kind');
  t.match(await run(t, { ...start(file), v: v + 1 }), refused, 'another version');
  t.match(await run(t, 'hello'), refused, 'no message at all');
  t.match(await run(t, null), refused, 'nothing');
  t.match(await run(t, start(file), start(file)), refused, 'started twice');
  t.match(await run(t, { v, kind: 'generate', id: 1, job: {} }), refused, 'a job before the start');
  t.equal(await run(t, start(file)), 'ready', 'the same file serves otherwise');
});
