import t from 'tap';
import type { AddonContext, Internals } from '../../../engine/llama/addon.js';
import { BatchSequences } from '../../../engine/llama/batch-sequences.js';
import { NOT_NUMBERS } from '../../../engine/llama/batch-sampler.js';
import type { StepPart } from '../../../engine/scheduler/decoder.js';

const TRAITS = { truncatable: true, restoredTruncatable: true, savable: true };

/** The addon's layer, as far as states need it. */
function layer(
  context: object,
  raClearMemory: () => void,
  copies: () => Promise<number> = () => Promise.reject(new Error('not expected')),
): ConstructorParameters<typeof BatchSequences>[0] {
  const Checkpoint = undefined as unknown as Internals['Checkpoint'];
  return {
    context: context as unknown as AddonContext,
    Checkpoint,
    addon: { raClearMemory, raSaveState: copies, raRestoreState: copies },
  };
}

const IMAGE = { index: 0, of: 12, columns: 4, positions: 4, whole: false };

t.test('truncating before an image of which only a part was evaluated removes that part', async (t) => {
  const removed: number[][] = [];
  const context = {
    removeTokenCellsFromSequence: (...range: number[]) => removed.push(range) > 0,
    getSequenceKvCacheMinPosition: () => 0,
  };
  const sequences = new BatchSequences(
    layer(context, () => undefined),
    1,
    TRAITS,
  );
  const text: StepPart = { kind: 'prefill', sequence: 0, tokens: new Uint32Array(3) };
  const part = {
    kind: 'embeddings',
    sequence: 0,
    tokens: new Uint32Array(8),
    image: IMAGE,
    values: new Float32Array(),
  };
  sequences.extend(text);
  sequences.extend(part as unknown as StepPart);
  await sequences.truncate(0, 3);
  t.same(removed, [[0, 3, 4]], 'all embeddings of an image are at its first position');
  sequences.extend({ ...text, tokens: new Uint32Array(2) });
  await sequences.truncate(0, 4);
  t.same(removed[1], [0, 4, 5]);
});

t.test('a state is saved while a copy of it is pending, although no sequence is empty', async (t) => {
  const calls: string[] = [];
  const context = {
    copySequenceStateFromOtherSequence: () => Promise.resolve(8),
    initBatch: () => undefined,
    addToBatch: (sequence: number, position: number) => calls.push(`token ${position} in ${sequence}`),
    decodeBatch: () => Promise.resolve(),
    removeTokenCellsFromSequence: (...range: number[]) => calls.push(`remove ${range.join(' ')}`) > 0,
  };
  const saves = (): Promise<number> => {
    calls.push('save');
    return Promise.reject(new Error('scripted'));
  };
  for (const truncatable of [true, false]) {
    calls.length = 0;
    const made = layer(context, () => undefined, saves);
    const sequences = new BatchSequences(made, 4, { ...TRAITS, truncatable });
    for (const [sequence, length] of [9, 5, 3, 2].entries())
      sequences.extend({ kind: 'prefill', sequence, tokens: new Uint32Array(length) });
    await sequences.copy(3, 0);
    await t.rejects(sequences.saveWhole(0), truncatable ? /scripted/ : /not copied yet/);
    t.same(calls, truncatable ? ['token 3 in 2', 'remove 2 3 4', 'save'] : []);
  }
});

t.test('a sequence that a copy has written over holds numbers again', async (t) => {
  const calls: string[] = [];
  const context = {
    copySequenceStateFromOtherSequence: (target: number, source: number) => {
      calls.push(`copy ${source} to ${target}`);
      return Promise.resolve(2);
    },
    disposeSequence: (sequence: number) => calls.push(`empty ${sequence}`),
  };
  const sequences = new BatchSequences(
    layer(context, () => void calls.push('clear')),
    2,
    TRAITS,
  );
  const parts = [0, 1].map((sequence): StepPart => ({ kind: 'prefill', sequence, tokens: new Uint32Array(3) }));
  for (const part of parts) sequences.extend(part);
  sequences.judge(parts, [NOT_NUMBERS, { kind: 'filled' }]);
  await sequences.copy(0, 1);
  sequences.decoded();
  sequences.judge(parts, [{ kind: 'filled' }, NOT_NUMBERS]);
  await sequences.truncate(1, 0);
  t.same(calls, ['copy 1 to 0', 'copy 0 to 1', 'empty 1'], 'the reply on it goes on');
  t.equal(sequences.next(0), undefined, 'until it is copied');
  sequences.decoded();
  t.equal(sequences.next(0), 3);
});
