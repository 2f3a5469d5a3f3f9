/**
 * The memory of engines of one file, for weights that llama.cpp repacks on a CPU (Q4_0, Q4_K, IQ4_NL, MXFP4) and for
 * ones that it does not (Q8_0): mapped weights are shared between processes, repacked ones are each process’s own.
 */
import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import type { FromEngine } from '../../engine/protocol/messages.js';
import { ENGINE_ENTRY, start } from '../../test/support/engine-messages.js';
import { LinkedChild } from '../../test/support/linked-child.js';
import { messageOf } from '../support/children.js';
import { random150mOf } from '../support/models.js';
import { keep, type Row } from '../support/results.js';

const MIB = 1 << 20;

/** At once; JavaScript’s heaps differ by tens of MiB between them, so the least counts. */
const ENGINES = 6;

interface Engine {
  readonly child: LinkedChild;
  readonly pid: number;
  /** As the engine reports it to the memory check, bytes. */
  readonly repacked: number;
}

/** An engine that has made its first reply, so that it has read all weights. */
async function engineOf(file: string): Promise<Engine> {
  const child = new LinkedChild(ENGINE_ENTRY);
  const { pid } = child.process;
  if (pid === undefined) throw new Error('no process');
  child.send(start(file));
  for (;;) {
    const message = await messageOf<FromEngine>(child);
    if (message.kind === 'ready') return { child, pid, repacked: message.facts.repackedBytes ?? 0 };
    if (message.kind === 'unable') throw new Error(message.reason);
  }
}

/** Kilobytes of each field that occurs once or several times in a text of the kernel. */
function sum(text: string, field: string): number {
  return [...text.matchAll(new RegExp(`^${field}:\\s+([0-9]+) kB$`, 'gm'))].reduce(
    (all, [, kib]) => all + Number(kib),
    0,
  );
}

/** A process’s own memory, and the memory of a file that it has mapped, bytes. */
function memoryOf(pid: number, file: string): { readonly own: number; readonly mapped: number } {
  const mappings = readFileSync(`/proc/${pid}/smaps`, 'utf8').split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const ofFile = mappings.filter((mapping) => mapping.split('\n', 1)[0]?.endsWith(file)).join('');
  return { own: sum(mappings.join(''), 'Anonymous') * 1024, mapped: sum(ofFile, 'Rss') * 1024 };
}

const rows: Row[] = [];
for (const weights of ['Q8_0', 'Q4_0', 'Q4_K', 'IQ4_NL', 'MXFP4'] as const) {
  const file = await random150mOf(weights);
  const engines: Engine[] = [];
  for (let i = 0; i < ENGINES; i++) engines.push(await engineOf(file));
  const memory = engines.map(({ pid }) => memoryOf(pid, file));
  rows.push({
    weights,
    'file, MiB': statSync(file).size / MIB,
    'of the file mapped in each, MiB': Math.min(...memory.map(({ mapped }) => mapped)) / MIB,
    'own of an engine, MiB': Math.min(...memory.map(({ own }) => own)) / MIB,
    'counted as repacked, MiB': (engines[0]?.repacked ?? NaN) / MIB,
  });
  for (const { child } of engines) {
    const exit = once(child.process, 'exit');
    child.leave();
    await exit;
  }
}
const [mapped, ...repacked] = rows;
const own = (row: Row | undefined): number => Number(row?.['own of an engine, MiB']);

await keep('repacked', {
  title: 'What engines of one file share',
  about: [
    `${ENGINES} engine processes load the same file, one after the other, on a CPU: a shape of 150 million weights with a small vocabulary, one seat of 256 tokens. An engine’s own memory is its anonymous pages, of which the least of all is given, since JavaScript’s heaps differ. Pages of the file that several have mapped exist once. What the memory check counts as repacked comes from the tensors’ types and the CPU’s instructions.`,
  ],
  rows,
  conclusions: repacked.map(
    (row) =>
      `An engine of the ${String(row['weights'])} file has ${(own(row) - own(mapped)).toFixed(0)} MiB more of its own than one of the Q8_0 file, which is not repacked; the memory check counts ${Number(row['counted as repacked, MiB']).toFixed(0)} MiB.`,
  ),
});
process.exit(0);
