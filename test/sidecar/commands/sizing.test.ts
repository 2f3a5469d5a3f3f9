import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { INSPECT_VERSION } from '../../../engine/protocol/inspect-messages.js';
import { loadConfig, type ModelConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import {
  imageFinding,
  reasons,
  replicasToSize,
  serves,
  shortOfMemory,
  sizeModels,
  type Sizing,
  type SizingOptions,
  type ToSize,
} from '../../../sidecar/commands/sizing.js';
import { stubProjector, VISION_STUB, type VisionScript } from '../../support/vision-script.js';
import { findingChecks } from '../../../sidecar/commands/engine-checks.js';

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
    (await size(t, models)).map(({ inspected }) =>
      inspected.kind === 'answer' ? inspected.answer.memory?.compute : undefined,
    );
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

const CACHE = { scope: 'account', maxAgeMs: 1000 } as const;
const MODEL = {
  file: '/m.gguf',
  kind: 'chat',
  engine: { kind: 'llama.cpp' },
  seats: 1,
  contextPerSeat: 64,
  threads: 1,
  gpu: false,
  replicas: 1,
  prefixReuse: 'auto',
  prefixCache: CACHE,
} as unknown as ModelConfig;

t.test('what is free for prefix caches is shared by the engines whose size is not set', async (t) => {
  const found = await replicasToSize([
    { ...MODEL, id: 'two', replicas: 2 },
    { ...MODEL, id: 'off', prefixReuse: 'off' },
    { ...MODEL, id: 'none', prefixCache: { ...CACHE, bytes: 0 } },
    { ...MODEL, id: 'set', prefixCache: { ...CACHE, bytes: 9 } },
  ]);
  const setups = found.flatMap((one) => (one.kind === 'replica' ? [one.toSize.setup] : []));
  t.equal(setups.length, 5);
  for (const { prefixCache } of setups) t.equal(prefixCache?.engines, 2);
  t.equal(setups[2]?.prefixReuse, 'off', 'an inspector counts no cache for it');
});

function modelWithVision(script?: VisionScript): ModelConfig {
  const vision = script && { vision: { projector: stubProjector(script) } };
  const models = JSON.stringify([{ id: 'seeing', kind: 'chat', file: 'm.gguf', ...vision }]);
  const loaded = loadConfig({ RA_MODELS: models });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const [one] = loaded.config.models;
  if (!one) throw new Error('no model');
  return one;
}

/** The line of `doctor`. */
function imagesLine(found: Awaited<ReturnType<typeof imageFinding>>): object | undefined {
  const answer = { head: undefined, load: undefined, memory: undefined, gpuMemory: undefined, sizes: [] };
  const findings = found ? [found.finding] : [];
  return findingChecks({ id: 'seeing', inspected: { kind: 'answer', answer: { ...answer, findings } } })[0];
}

const look = (script?: VisionScript): ReturnType<typeof imageFinding> =>
  imageFinding(modelWithVision(script), 'm.gguf', systemClock, VISION_STUB);

t.test('the projector fits, and what confines its process', async (t) => {
  const found = await look({});
  t.match(found?.finding, { what: 'images', ok: true });
  t.match(
    found?.finding.says,
    /^the projector fits, takes [\d.]+ MiB of memory; system calls filtered, memory bounded$/,
  );
  t.ok((found?.bytes ?? 0) > 2 ** 20);
  t.match(imagesLine(found), { what: 'images of seeing', level: 'ok' });
});

t.test('a process that is not confined is a warning', async (t) => {
  for (const confinement of [{ filtered: false }, { bounded: false }]) {
    const found = await look({ confinement });
    t.match(found?.finding, { ok: false, needed: false, says: /system calls not filtered|memory not bounded/ });
    t.match(imagesLine(found), { level: 'warn', advice: 'docs/vision.md' });
  }
  t.match((await look({ confinement: { ownUser: true } }))?.finding.says, /a user of its own/);
});

t.test('a projector of another model is refused', async (t) => {
  t.match(await look({ start: 'misfit' }), {
    finding: { ok: false, needed: true, says: /^the projector cannot be used: mismatch/ },
    bytes: 0,
  });
  t.match(await look({ start: 'exit' }), { finding: { ok: false, needed: true, says: 'its process ended: died' } });
});

t.test('a model without vision is not looked at', async (t) => {
  t.equal(await look(), undefined);
});
