/**
 * A stub of the prompt host’s worker. A body is JSON text: `do` selects what the item does, `log` names a file to which
 * every run is written first, as `<name> start` and, when it is answered, `<name> end`.
 */
import { appendFileSync, existsSync, writeSync } from 'node:fs';
import { getEnvironmentData } from 'node:worker_threads';
import type { HostSetup, ModelReport, WorkerTask } from '../../sidecar/prompts/messages.js';
import type { Tokenized } from '../../sidecar/prompts/prompt-maker.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';

export interface StubBody {
  readonly name: string;
  readonly log: string;
  /** answer; end the process; write no frame to the link; never return; throw; answer once the file `until` exists; then end the process. */
  readonly do: 'answer' | 'die' | 'garble' | 'hang' | 'throw' | 'wait' | 'wait-die';
  readonly until?: string;
}

const setup = getEnvironmentData('setup') as HostSetup;
/** As in engine/protocol/link.ts. */
const LINK_FD = 3;
const never = new Int32Array(new SharedArrayBuffer(4));

// A model whose file name selects it represents a host that cannot start, or one that breaks the protocol.
if (setup.models.some((model) => model.file === 'fatal')) die();
if (setup.models.some((model) => model.file === 'garbled')) garble();

export default function run(task: WorkerTask): readonly ModelReport[] | Tokenized {
  if (task.kind === 'report') return setup.models.map(({ id }) => ({ id, tools: false, system: true }));
  const body = JSON.parse(Buffer.from(task.bytes).toString()) as StubBody;
  appendFileSync(body.log, `${body.name} start\n`);
  act(body);
  appendFileSync(body.log, `${body.name} end\n`);
  return { kind: 'chat', prompt: tokenPrompt(Uint32Array.of(body.name.length)) };
}

function act(body: StubBody): void {
  if (body.do === 'throw') throw new Error('stub');
  if (body.do === 'garble') garble();
  if (body.do === 'hang') Atomics.wait(never, 0, 0);
  // Another process creates the file, without an event for this thread.
  while (body.until !== undefined && !existsSync(body.until)) Atomics.wait(never, 0, 0, 5);
  if (body.do === 'die' || body.do === 'wait-die') die();
}

function garble(): void {
  writeSync(LINK_FD, Buffer.alloc(64, 0xff));
}

function die(): void {
  process.kill(process.pid, 'SIGKILL');
  Atomics.wait(never, 0, 0);
}
