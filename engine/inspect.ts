/**
 * The inspector process: answers one question of inspect-messages.ts and exits. Forked by the sidecar's commands, so that
 * what native code makes of a file ends this process at worst; leaves when its channel closes.
 */
import { fetchModel } from './llama/inspect/fetch.js';
import { readModelHead } from './llama/inspect/head.js';
import { machineFacts } from './llama/inspect/machine.js';
import { inspectModel } from './llama/inspect/model.js';
import {
  INSPECT_VERSION as v,
  type Answer,
  type Asked,
  type FromInspector,
  type HeadReport,
  type ToInspector,
} from './protocol/inspect-messages.js';
import { ENGINE_EXIT } from './protocol/messages.js';

// An abort inside llama.cpp would start a debugger on this process to print where it was.
process.env['GGML_NO_BACKTRACE'] = '1';

/** The least time between two messages of progress, ms: people do not see more, and downloads tell of every 64 KiB. */
const PROGRESS_MS = 100;

const left = new AbortController();
let asked = false;
let lastProgress = -Infinity;

function send(message: FromInspector, then: () => void = () => undefined): void {
  // A channel that has just closed has nobody at its other end.
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

async function answerTo(asked: ToInspector): Promise<Answer[Asked]> {
  switch (asked.kind) {
    case 'machine':
      return await machineFacts(asked.question.gpu);
    case 'heads':
      return await Promise.all(asked.question.files.map(reportHead));
    case 'model':
      return await inspectModel(asked.question, progress);
    case 'fetch':
      return await fetchModel(asked.question.uri, asked.question.dir, progress, left.signal);
  }
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
// Whoever asked is gone. A download is undone first; it may not take for ever.
process.on('disconnect', () => {
  left.abort();
  setTimeout(() => process.exit(ENGINE_EXIT.done), PROGRESS_MS * 20).unref();
  if (!asked) process.exit(ENGINE_EXIT.done);
});
// Ctrl-C reaches the whole process group; whoever asked leaves first, and that ends us.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);
