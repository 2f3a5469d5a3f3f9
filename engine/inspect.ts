/**
 * The inspector process: answers one question of inspect-messages.ts and exits. Forked by the sidecar's commands, so
 * that a crash of native code on a file ends only this process; exits when its channel closes.
 */
import './protocol/leave-signals.js';
import { computeOnce, machineFacts } from './llama/inspect/machine.js';
import { fetchModel } from './llama/inspect/fetch.js';
import { readModelHead } from './llama/inspect/head.js';
import { inspectModel } from './llama/inspect/model.js';
import { writeVocabulary } from './llama/inspect/vocabulary-file.js';
import {
  INSPECT_VERSION as v,
  type Answer,
  type Asked,
  type FromInspector,
  type HeadReport,
  type Question,
  type ServerReport,
  type ToInspector,
} from './protocol/inspect-messages.js';
import { LoadFailure } from './llama/load-failure.js';
import { ENGINE_EXIT } from './protocol/messages.js';
import { isPooling } from './protocol/setup.js';
import { startRemotePooling } from './remote/remote-pooling.js';
import { checkRemote } from './remote/start.js';
import { processClock } from './protocol/clock.js';

// An abort inside llama.cpp would start a debugger on this process to print a stack trace.
process.env['GGML_NO_BACKTRACE'] = '1';

/** The least time between two progress messages, ms; downloads report every 64 KiB. */
const PROGRESS_MS = 100;

const left = new AbortController();
let asked = false;
let lastProgress = -Infinity;

function send(message: FromInspector, then: () => void = () => undefined): void {
  // The channel may have just closed.
  process.send?.(message, undefined, undefined, then);
}

function progress(done: number, total: number): void {
  const now = performance.now();
  if (now - lastProgress < PROGRESS_MS) return;
  lastProgress = now;
  send({ v, kind: 'progress', done, total });
}

async function reportHead(file: string): Promise<HeadReport> {
  const read = await readModelHead(file);
  return read.kind === 'bad' ? read : { kind: 'head', head: read.head };
}

async function reportServer({ model, remote }: Question['server']): Promise<ServerReport> {
  try {
    const { facts } = isPooling(model.kind)
      ? await startRemotePooling(model, remote, { clock: processClock, suspect: () => Promise.resolve() })
      : await checkRemote(model, remote);
    return { kind: 'serves', warnings: facts.warnings ?? [] };
  } catch (error) {
    if (error instanceof LoadFailure) return { kind: 'unusable', problem: error.message };
    throw error;
  }
}

const ANSWERS: { readonly [Kind in Asked]: (question: Question[Kind]) => Promise<Answer[Kind]> } = {
  machine: ({ gpu }) => machineFacts(gpu),
  compute: ({ file, gpu }) => computeOnce(file, gpu),
  heads: ({ files }) => Promise.all(files.map(reportHead)),
  model: (question) => inspectModel(question, progress),
  server: reportServer,
  vocabulary: ({ file, out }) => writeVocabulary(file, out),
  fetch: ({ uri, dir }) => fetchModel(uri, dir, progress, left.signal),
};

async function answerTo({ kind, question }: ToInspector): Promise<Answer[Asked]> {
  const answer: (question: never) => Promise<Answer[Asked]> = ANSWERS[kind];
  return await answer(question as never);
}

process.on('message', (message: ToInspector | undefined) => {
  if (message?.v !== v || asked) process.exit(ENGINE_EXIT.protocol);
  asked = true;
  answerTo(message).then(
    (answer) => send({ v, kind: 'answer', answer }, () => process.exit(ENGINE_EXIT.done)),
    (error: unknown) => {
      const reason = error instanceof Error ? error.message : 'unknown failure';
      send({ v, kind: 'failed', reason }, () => process.exit(ENGINE_EXIT.unable));
    },
  );
});
// The parent is gone. A download is removed first, within a time limit.
process.on('disconnect', () => {
  left.abort();
  setTimeout(() => process.exit(ENGINE_EXIT.done), PROGRESS_MS * 20).unref();
  if (!asked) process.exit(ENGINE_EXIT.done);
});
