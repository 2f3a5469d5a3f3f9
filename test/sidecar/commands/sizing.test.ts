import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { INSPECT_VERSION } from '../../../engine/protocol/inspect-messages.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import {
  reasons,
  serves,
  shortOfMemory,
  sizeModels,
  type Sizing,
  type SizingOptions,
  type ToSize,
} from '../../../sidecar/commands/sizing.js';
import { stubProjector, VISION_STUB } from '../../support/vision-script.js';

/** The weights of every model, and the other memory of each, as in the inspector below. */
const WEIGHTS = 1000;
const OWN = 10;
const GPU_OWN = 7;
/** Of the weights of the file q4. */
const REPACKED = 900;

/**
 * An inspector for which a model of more than 100 seats does not fit, and that answers with the memory reported as
 * taken.
 */
function entry(t: Test): string {
  const file = join(t.testdir(), 'inspector.mjs');
  writeFileSync(
    file,
    `process.on('message', ({ question: { setup, taken } }) => {
      const repacked = setup.file === 'q4' ? ${REPACKED} : 0;
      const fit = { repacked, weights: ${WEIGHTS}, total: ${WEIGHTS + OWN}, perSeat: taken.memory, compute: taken.gpuMemory, usable: 0 };
      const finding = { what: 'memory', ok: setup.seats <= 100, needed: true, says: 'too large' };
      const answer = { memory: fit, gpuMemory: setup.gpu === 'cuda' ? { ...fit, total: ${GPU_OWN} } : undefined, sizes: [], findings: [finding] };
      process.send({ v: ${INSPECT_VERSION}, kind: 'answer', answer }, () => process.exit(0));
    });`,
  );
  return file;
}

function model(file: string, changes: Partial<ToSize['setup']> = {}, lazy = false): ToSize {
  const sizes = { seats: 1, contextPerSeat: 64, threads: 0, prefillTokensPerStep: 1 };
  return { id: file, setup: { file, kind: 'chat', ...sizes, gpu: false, flashAttention: false, ...changes }, lazy };
}

function size(t: Test, models: readonly ToSize[], options: Partial<SizingOptions> = {}): Promise<Sizing[]> {
  const io = { clock: systemClock, terminal: { isTTY: false, write: () => true } };
  return sizeModels(models, { load: false, entry: entry(t), ...options }, io);
}

/** The memory before each model that was reported as taken. */
function heard(sizings: readonly Sizing[]): (number | undefined)[] {
  return sizings.map(({ inspected }) => (inspected.kind === 'answer' ? inspected.answer.memory?.perSeat : undefined));
}

t.test('weights of one file count once, for whichever model', async (t) => {
  const found = heard(await size(t, [model('a'), model('a'), model('b'), model('a')]));
  t.strictSame(found, [0, OWN, WEIGHTS + 2 * OWN, WEIGHTS + 3 * OWN]);
});

t.test('each engine’s own copy of weights counts once per engine', async (t) => {
  const found = heard(await size(t, [model('q4'), model('q4'), model('b')]));
  t.strictSame(found, [0, OWN + REPACKED, WEIGHTS - REPACKED + 2 * (OWN + REPACKED)]);
});

t.test('on a GPU each has its own', async (t) => {
  const [, , third] = await size(t, [model('a', { gpu: 'cuda' }), model('a', { gpu: 'cuda' }), model('a')]);
  t.match(third, { inspected: { answer: { memory: { compute: 2 * GPU_OWN } } } });
});

t.test('GPU memory counts on the device where it is: on one device it adds up, on two it does not', async (t) => {
  const on = (...devices: string[]): ToSize => ({ ...model('a', { gpu: 'cuda' }), devices });
  const taken = async (...models: ToSize[]): Promise<(number | undefined)[]> =>
    (await size(t, models)).map(({ inspected }) => {
      return inspected.kind === 'answer' ? inspected.answer.memory?.compute : undefined;
    });
  t.strictSame(await taken(on('0'), on('0'), on('1'), on('0')), [0, GPU_OWN, 0, 2 * GPU_OWN]);
  t.strictSame(await taken(on('0', '1'), on('1'), on('GPU-2')), [0, GPU_OWN / 2, 0], 'layers are split over both');
  const uuids = [on('GPU-1a'), on('GPU-2a'), on('GPU-1', 'GPU-2a7'), on()];
  t.strictSame(await taken(...uuids), [0, 0, 2 * GPU_OWN, 3 * GPU_OWN], 'by the beginning of a UUID too');
});

t.test('a model that does not fit, or is not loaded at the start, takes nothing', async (t) => {
  t.strictSame(heard(await size(t, [model('big', { seats: 101 }), model('a')])), [0, 0]);
  t.strictSame(heard(await size(t, [model('lazy', {}, true), model('a'), model('b')])), [0, 0, WEIGHTS + OWN]);
});

t.test('beside a running sidecar a model that does not fit is reported but not refused', async (t) => {
  const big = model('big', { seats: 101 });
  const [alone] = await size(t, [big]);
  const [beside, next] = await size(t, [big, model('a')], { running: true });
  const [named] = await size(t, [big], { running: true, memory: 5 });
  if (!alone || !beside || !next || !named) throw new Error('one answer for each');
  t.equal(serves(alone), false);
  t.equal(shortOfMemory(alone), undefined);
  t.equal(serves(beside), true);
  t.match(shortOfMemory(beside), /^too large \(a sidecar that runs on this data folder uses a part of it now\)$/);
  t.strictSame(heard([next]), [0]);
  t.equal(shortOfMemory(next), undefined);
  t.strictSame(reasons(named), ['too large'], 'of a named amount of memory nothing is in use');
});

t.test('what reads a model’s images takes memory from its engine, and from those after it', async (t) => {
  const seeing = { ...model('a'), model: visionModel() };
  const sizings = await size(t, [seeing, model('b')], { visionEntry: VISION_STUB });
  const [own = 0, next = 0] = heard(sizings);
  t.ok(own > 2 ** 20, `${own} bytes of the vision process`);
  t.equal(next, own + WEIGHTS + OWN);
  t.match(sizings[0], { inspected: { answer: { findings: [{ what: 'memory' }, { what: 'images', ok: true }] } } });
});

function visionModel(): NonNullable<ToSize['model']> {
  const models = [{ id: 'a', kind: 'chat', file: 'a', vision: { projector: stubProjector() } }];
  const loaded = loadConfig({ RA_MODELS: JSON.stringify(models) });
  const [one] = loaded.kind === 'invalid' ? [] : loaded.config.models;
  if (!one) throw new Error('no model');
  return one;
}
