import { fork, type ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import {
  INSPECT_VERSION,
  type Answer,
  type Asked,
  type FromInspector,
  type Question,
  type ToInspector,
} from '../../engine/protocol/inspect-messages.js';
import { serverKey } from '../../engine/protocol/setup.js';
import type { Clock } from '../lib/clock.js';
import { childEnvironment, exitReason, StderrTail } from '../lib/child-process.js';

export type {
  Answer,
  Asked,
  Fit,
  HeadReport,
  LoadFacts,
  MachineFacts,
  ModelReport,
  Question,
  ServerReport,
} from '../../engine/protocol/inspect-messages.js';

const ENTRY = fileURLToPath(new URL('../../engine/inspect.js', import.meta.url));

/**
 * An inspector without messages for this long is killed, ms. Reading a large model from a slow disk reports progress; only the start of a
 * GPU's driver and the last steps of a load do not.
 */
const SILENCE_MS = 300_000;

/** Those that make requests. */
const WORK: Partial<Record<Asked, 'requests' | 'downloads'>> = { server: 'requests', fetch: 'downloads' };

export type Inspected<Kind extends Asked> =
  | { readonly kind: 'answer'; readonly answer: Answer[Kind] }
  /** It failed, or was crashed by the inspected file. `reason`: one line for the operator. */
  | { readonly kind: 'failed'; readonly reason: string };

export interface InspectOptions {
  readonly clock: Clock;
  /** Bytes done and total, some ten times a second. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Environment variables besides those of this process that it gets. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Another entry module, for tests. */
  readonly entry?: string;
  readonly inspectHere?: InspectHere;
}

/** Answers in this process, for tests of many commands. Undefined: a process answers this kind. Rejects as an inspector fails. */
export type InspectHere = <Kind extends Asked>(
  kind: Kind,
  question: Question[Kind],
  onProgress: (done: number, total: number) => void,
) => Promise<Answer[Kind]> | undefined;

/** Asks a separate process, which has ended when this settles. Never rejects. */
export function inspect<Kind extends Asked>(
  kind: Kind,
  question: Question[Kind],
  { clock, onProgress, environment, entry = ENTRY, inspectHere }: InspectOptions,
): Promise<Inspected<Kind>> {
  const here = inspectHere?.(kind, question, onProgress ?? (() => undefined));
  if (here !== undefined)
    return here.then(
      (answer) => ({ kind: 'answer', answer }),
      (error: unknown) => ({ kind: 'failed', reason: error instanceof Error ? error.message : 'unknown failure' }),
    );
  return new Promise((resolve) => {
    const stderr = new StderrTail();
    const env = childEnvironment(environment, WORK[kind] ?? 'computes');
    const child = fork(entry, [], { serialization: 'advanced', stdio: ['ignore', 'ignore', 'pipe', 'ipc'], env });
    let result: Inspected<Kind> | undefined;
    const watch = (): (() => void) =>
      clock.after(SILENCE_MS, () => {
        result ??= { kind: 'failed', reason: 'it does not answer' };
        child.kill('SIGKILL');
      });
    let cancel = watch();
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => stderr.add(chunk));
    child.on('message', (message: FromInspector) => {
      cancel();
      cancel = watch();
      if (message.v !== INSPECT_VERSION) child.kill('SIGKILL');
      else if (message.kind === 'progress') onProgress?.(message.done, message.total);
      else if (message.kind === 'failed') result ??= { kind: 'failed', reason: message.reason };
      else result ??= { kind: 'answer', answer: message.answer as Answer[Kind] };
    });
    child.once('close', (code, signal) => {
      cancel();
      resolve(result ?? { kind: 'failed', reason: endOf(code, signal, stderr) });
    });
    child.once('error', () => {
      if (child.pid !== undefined) return;
      cancel();
      resolve({ kind: 'failed', reason: 'the inspector could not be started' });
    });
    // Without a free descriptor there is no child and no channel.
    if (child.pid !== undefined) ask(child, { v: INSPECT_VERSION, kind, question } as ToInspector);
  });
}

/** If the child has ended before the message arrives, its exit reports that. */
function ask(child: ChildProcess, message: ToInspector): void {
  child.send(message, () => undefined);
}

function endOf(code: number | null, signal: string | null, { hint }: StderrTail): string {
  const how = signal === null ? `ended with ${code ?? 'no code'}` : exitReason(signal);
  return `llama.cpp cannot load it: the inspector ${how}${hint === undefined ? '' : ` (${hint})`}`;
}

/** The key of an external server, as its engine process reads it; undefined if the file has none. Rejects if it cannot be read. */
export async function readServerKey(file: string): Promise<string | undefined> {
  return serverKey(await readFile(file, 'utf8'));
}
