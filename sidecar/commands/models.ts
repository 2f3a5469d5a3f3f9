/** `ra-sidecar models`: lists the models, downloads files, checks whether they can be served on this machine, reloads weights. */
import { lstat, readdir, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { CONTEXT, MODEL_KINDS, MOST_SEATS } from '../config/model-schema.js';
import type { Config, ModelConfig } from '../config/config.js';
import { inspect, type HeadReport } from '../engine-client/inspector.js';
import { modelsDir } from '../app/hosted-models.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, failedWith, runOf, UsageError, type Given, type Io, type Output } from './command.js';
import { COMMANDS } from './command-table.js';
import { isRunning } from './host-checks.js';
import {
  isExternal,
  modelText,
  replicasToSize,
  serves,
  sizeModels,
  withFile,
  type Sizing,
  type ToSize,
} from './sizing.js';
import { bytesOf, columns, Progress, size, wholeOf } from './terminal.js';

type Settings = Pick<Config, 'models' | 'dataDir' | 'operators'>;

type Specs = typeof COMMANDS.models.commands;

/** Settings for checking a model file that is not configured. */
const FILE_DEFAULTS = {
  kind: 'chat',
  seats: 8,
  contextPerSeat: 8192,
  threads: 0,
  gpu: 'auto',
  flashAttention: 'auto',
  prefillTokensPerStep: 0,
} as const;

/** `ra-sidecar models list|add|verify|reload|vocabulary`. Resolves with the exit code. */
export function models(config: Settings, args: readonly string[], io: Io): Promise<number> {
  return runOf('models', COMMANDS.models, args, {
    list: ({ values }) => list(config, values.json === true, io),
    add: (given) => add(config, given, io),
    verify: (given) => verify(config, given, io),
    vocabulary: ({ operands }) => vocabulary(operands, io),
    reload: (given) => reload(config, given, io),
  });
}

async function list(config: Settings, json: boolean, io: Io): Promise<number> {
  const { out, err: say } = io;
  const models = config.models.map(withFile);
  const there = [...new Set(models.map(({ file }) => file))];
  const asked = await inspect('heads', { files: there }, io);
  if (asked.kind === 'failed') throw new Error(asked.reason);
  const heads = new Map(there.map((file, i) => [file, asked.answer[i]]));
  const rows = models.map((model) => described(model, heads.get(model.file)));
  if (json) out(`${JSON.stringify(rows, null, 2)}\n`);
  else {
    const cells = rows.map(({ id, kind, file, bytes, architecture, quantisation, load, seats, contextPerSeat }) => [
      id,
      kind,
      bytes === undefined ? '-' : size(bytes),
      architecture ?? '-',
      quantisation ?? '-',
      `${seats} x ${contextPerSeat}`,
      load,
      file,
    ]);
    out(columns([['ID', 'KIND', 'SIZE', 'ARCHITECTURE', 'QUANTISATION', 'SEATS', 'LOADED', 'FILE'], ...cells]));
  }
  const bad = rows.filter(({ problem }) => problem !== undefined);
  for (const { id, problem } of bad) say(`ra-sidecar: model ${id}: ${problem ?? ''}\n`);
  return bad.length === 0 ? EXIT.done : EXIT.failed;
}

interface Row {
  readonly id: string;
  readonly kind: string;
  readonly file: string;
  readonly bytes?: number;
  readonly name?: string;
  readonly architecture?: string;
  readonly quantisation?: string;
  readonly trainedContext?: number;
  readonly seats: number;
  readonly contextPerSeat: number;
  readonly load: string;
  readonly problem?: string;
}

function described(model: ModelConfig, head: HeadReport | undefined): Row {
  const { id, kind, file, seats, contextPerSeat, load, idleUnloadMs } = model;
  const leaves = idleUnloadMs > 0 ? `, unloaded after ${Math.round(idleUnloadMs / 1000)} s` : '';
  return {
    id,
    kind,
    file,
    ...(head?.kind === 'head' && head.head),
    seats,
    contextPerSeat,
    load: `${load}${leaves}`,
    ...(head?.kind === 'bad' && { problem: head.problem }),
  };
}

async function add(
  config: Settings,
  { values, operands: [uri = ''] }: Given<Specs['add']['options']>,
  io: Io,
): Promise<number> {
  const { out, err: say, clock, terminal } = io;
  let file = resolve(uri);
  if (!(await isThere(file))) {
    if (!/^[a-z]+:/i.test(uri)) throw new Error(`${file} does not exist`);
    const dir = values.dir === undefined ? modelsDir(config.dataDir) : resolve(values.dir);
    await removeLeftovers(dir);
    const bar = new Progress(clock, terminal);
    const fetched = await inspect(
      'fetch',
      { uri, dir },
      { ...io, onProgress: (done, total) => bar.show('fetching', total > 0 ? done / total : 0, `of ${size(total)}`) },
    );
    bar.clear();
    if (fetched.kind === 'failed' || fetched.answer.kind === 'refused') {
      const why =
        fetched.kind === 'failed' ? fetched.reason : fetched.answer.kind === 'refused' && fetched.answer.problem;
      return failedWith(say, `it was not added: ${String(why)}`);
    }
    ({ file } = fetched.answer);
    say(fetched.answer.fresh ? `fetched ${size(fetched.answer.bytes)}\n` : 'the file already exists\n');
  }
  const [sizing] = await sizeModels([{ id: file, setup: { ...FILE_DEFAULTS, file } }], { load: true }, io);
  if (!sizing) return EXIT.failed;
  if (values.json) out(`${JSON.stringify({ file, ...jsonOf(sizing) }, null, 2)}\n`);
  else out(`${file}\n`);
  if (!values.json) say(modelText(sizing));
  if (serves(sizing)) say(`${snippet(file, sizing)}\n`);
  return serves(sizing) ? EXIT.done : EXIT.failed;
}

/** Prefix of the folders of downloads (engine/llama/inspect/fetch.ts). */
const ADDING = '.adding-';

/** A folder without writes for this long is abandoned, ms: downloads that stall are ended after a minute. */
const ABANDONED_MS = 24 * 60 * 60 * 1000;

/** Removes what killed downloads left in `dir`. Never rejects. */
async function removeLeftovers(dir: string): Promise<void> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    if (!entry.isDirectory() || !entry.name.startsWith(ADDING)) continue;
    const folder = join(dir, entry.name);
    // Folders of other users stay.
    if (Date.now() - (await lastWritten(folder)) > ABANDONED_MS)
      await rm(folder, { recursive: true }).catch(() => undefined);
  }
}

/** The latest time of a folder and its files, ms; a growing file does not change the time of its folder. */
async function lastWritten(folder: string): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  const times = [folder, ...names.map((name) => join(folder, name))].map((path) =>
    lstat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    ),
  );
  return Math.max(...(await Promise.all(times)));
}

async function isThere(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}

/** An entry to paste into `models` of the configuration. */
function snippet(file: string, { setup, inspected }: Sizing): string {
  const facts = inspected.kind === 'answer' ? inspected.answer : undefined;
  const trained = facts?.head?.trainedContext ?? setup.contextPerSeat;
  const entry = {
    id: (/([A-Za-z0-9][\w.-]*)\.gguf$/i.exec(file)?.[1] ?? 'my-model').toLowerCase(),
    kind: setup.kind,
    file,
    seats: setup.seats,
    contextPerSeat: Math.min(setup.contextPerSeat, trained),
  };
  return `in models of the configuration: ${JSON.stringify(entry)}`;
}

async function vocabulary([file, target, more]: readonly string[], io: Io): Promise<number> {
  const { out, err: say } = io;
  if (file === undefined || target === undefined || more !== undefined) {
    throw new UsageError('models vocabulary: a model file and the file to write are required');
  }
  const path = resolve(target);
  const asked = await inspect('vocabulary', { file: resolve(file), out: path }, io);
  if (asked.kind === 'answer' && asked.answer.kind === 'written') {
    out(`${path}\n`);
    say(`wrote ${size(asked.answer.bytes)}\n`);
    return EXIT.done;
  }
  const why = asked.kind === 'failed' ? asked.reason : asked.answer.kind === 'refused' && asked.answer.problem;
  return failedWith(say, `no vocabulary was written: ${String(why)}`);
}

async function verify(config: Settings, given: Given<Specs['verify']['options']>, io: Io): Promise<number> {
  const { values, operands } = given;
  const { kind, seats, context, memory, 'gpu-memory': gpuMemory, json } = values;
  const [named] = operands;
  const changes = {
    ...(seats !== undefined && { seats: wholeOf('--seats', seats, 1, MOST_SEATS) }),
    ...(context !== undefined && { contextPerSeat: wholeOf('--context', context, CONTEXT.minimum, CONTEXT.maximum) }),
    ...(kind !== undefined && { kind: MODEL_KINDS.find((known) => known === kind) ?? 'chat' }),
  };
  const wanted = {
    load: true,
    ...(memory !== undefined && { memory: bytesOf('--memory', memory) }),
    ...(gpuMemory !== undefined && { gpuMemory: bytesOf('--gpu-memory', gpuMemory) }),
  };
  const chosen = config.models.filter(({ id }) => named === undefined || id === named);
  for (const { id } of chosen.filter(isExternal))
    io.err(`${id} is computed by an external server: its weights are not here\n`);
  const look = (some: readonly ToSize[], running: boolean): Promise<Sizing[]> =>
    sizeModels(
      some.map((one) => ({ ...one, setup: { ...one.setup, ...changes } })),
      { ...wanted, running },
      io,
    );
  if (named !== undefined && chosen.length === 0 && !(await isThere(resolve(named))))
    io.err(`no model has this id; there are ${config.models.map(({ id }) => id).join(', ')}\n`);
  const running = await isRunning(config);
  const sizings =
    named !== undefined && chosen.length === 0
      ? await look([{ id: named, setup: { ...FILE_DEFAULTS, file: resolve(named) } }], false)
      : await look(await toVerify(chosen.filter((model) => !isExternal(model)).map(withFile)), running);
  if (json) io.out(`${JSON.stringify(sizings.map(jsonOf), null, 2)}\n`);
  else io.out(sizings.map(modelText).join('\n'));
  const bad = sizings.filter((sizing) => !serves(sizing));
  return bad.length === 0 ? EXIT.done : EXIT.failed;
}

/** The replicas of these models. Throws if those of one cannot be. */
async function toVerify(models: readonly ModelConfig[]): Promise<ToSize[]> {
  return (await replicasToSize(models)).map((one) => {
    if (one.kind === 'unfit') throw new Error(`model ${one.model.id}: ${one.why}`);
    // To verify one model is to ask whether it fits, so a lazy one counts for those after it too.
    return { ...one.toSize, lazy: false };
  });
}

function jsonOf(sizing: Sizing): object {
  const { id, setup, inspected } = sizing;
  const found = inspected.kind === 'answer' ? inspected.answer : { problem: inspected.reason };
  return { id, setup, serves: serves(sizing), ...found };
}

interface Reloaded {
  readonly weight_version: string;
  readonly replicas: number;
  readonly file: string;
}

/** Resolves with the exit code once the reload has ended, which may take minutes. */
async function reload(
  { operators }: Settings,
  { values, operands: [model = ''] }: Given<Specs['reload']['options']>,
  { out, err: say }: Output,
): Promise<number> {
  if (operators.port === 0) throw new UsageError('models reload: operators.port has to be set');
  const file = values.file === undefined ? {} : { file: resolve(values.file) };
  // Without a time limit: loading may take long, and the sidecar bounds each load.
  const asked = await askSidecar<Reloaded>(operators, {
    method: 'POST',
    path: '/models/reload',
    body: JSON.stringify({ model, ...file }),
  });
  if (asked.kind === 'none' || asked.body.weight_version === undefined) {
    const why = asked.kind === 'none' ? asked.why : (asked.body.error?.message ?? 'no answer that this command knows');
    return failedWith(say, `${model} was not reloaded: ${why}`);
  }
  const answer = asked.body;
  if (values.json) out(`${JSON.stringify(answer, null, 2)}\n`);
  else {
    const { weight_version: version, replicas = 0 } = answer;
    const done = replicas === 0 ? 'all replicas had it' : `${replicas} replica${replicas === 1 ? '' : 's'} loaded it`;
    out(`${model} serves ${version} from ${answer.file ?? ''}: ${done}\n`);
  }
  if (values.file !== undefined) say('a restart of the sidecar loads the file that the configuration names\n');
  return EXIT.done;
}
