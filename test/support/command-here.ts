/**
 * Runs `ra-sidecar` in this process, and what it asks inspectors: a process takes half a second of processor time, an inspector 0.8.
 */
import { Writable } from 'node:stream';
import type { Asked, HeadReport, Question } from '../../engine/protocol/inspect-messages.js';
import { runCommand } from '../../sidecar/commands/command-line.js';
import type { InspectHere } from '../../sidecar/engine-client/inspector.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { CommandResult } from './cli.js';

/** Variables to be restored when the running command has ended. */
let replaced: ReadonlyMap<string, string | undefined> | undefined;

/**
 * Runs a command other than `serve` to its end. `environment` replaces variables of this process while it runs, also
 * for the children that it starts, so only one command runs at a time. `inspectors`: 'processes' for what ends an inspector.
 */
export async function runHere(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  { inspectors = 'here' }: { readonly inspectors?: 'here' | 'processes' } = {},
): Promise<CommandResult> {
  if (replaced) throw new Error('another command is running, with another environment');
  replaced = new Map(Object.keys(environment).map((name) => [name, process.env[name]]));
  Object.assign(process.env, environment);
  let [printed, stderr] = ['', ''];
  const stdout = new Writable({
    write: (part, _, done) => {
      printed += String(part);
      done();
    },
  });
  try {
    const code = await runCommand(args, {
      out: (text) => void (printed += text),
      err: (text) => void (stderr += text),
      stdout,
      clock: systemClock,
      terminal: { write: () => true },
      ...(inspectors === 'here' && { inspectHere }),
      serve: () => Promise.reject(new Error('serve needs a process of its own')),
    });
    return { code, stdout: printed, stderr };
  } finally {
    for (const [name, value] of replaced) {
      if (value === undefined) Reflect.deleteProperty(process.env, name);
      else process.env[name] = value;
    }
    replaced = undefined;
  }
}

/** As engine/inspect.ts, but for downloads from Hugging Face and questions to servers, whose libraries read the environment when they are loaded. */
const inspectHere = ((kind: Asked, question: Question[Asked], onProgress: (done: number, total: number) => void) => {
  switch (kind) {
    case 'heads':
      return headsOf(question as Question['heads']);
    case 'machine':
      return import('../../engine/llama/inspect/machine.js').then(({ machineFacts }) =>
        machineFacts((question as Question['machine']).gpu),
      );
    case 'model':
      return import('../../engine/llama/inspect/model.js').then(({ inspectModel }) =>
        inspectModel(question as Question['model'], onProgress),
      );
    case 'vocabulary': {
      const { file, out } = question as Question['vocabulary'];
      return import('../../engine/llama/inspect/vocabulary-file.js').then(({ writeVocabulary }) =>
        writeVocabulary(file, out),
      );
    }
    case 'fetch': {
      const { uri, dir } = question as Question['fetch'];
      if (!/^http:/.test(uri)) return undefined;
      return import('../../engine/llama/inspect/fetch.js').then(({ fetchModel }) =>
        fetchModel(uri, dir, onProgress, new AbortController().signal),
      );
    }
    default:
      return undefined;
  }
}) as InspectHere;

async function headsOf({ files }: Question['heads']): Promise<readonly HeadReport[]> {
  const { readModelHead } = await import('../../engine/llama/inspect/head.js');
  return Promise.all(
    files.map(async (file) => {
      const read = await readModelHead(file);
      return read.kind === 'bad' ? read : { kind: 'head', head: read.head };
    }),
  );
}
