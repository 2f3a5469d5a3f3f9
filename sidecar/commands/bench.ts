/** `ra-sidecar bench`: measures the configured models on this machine, through the engine process that serves them. */
import { fileURLToPath } from 'node:url';
import { HEARTBEAT_MS, templateOf } from '../app/model-processes.js';
import type { Config, ModelConfig } from '../config/config.js';
import { EngineChild } from '../engine-client/child.js';
import type { EngineFacts } from '../engine-client/engine.js';
import { measure, type Figures } from './bench-run.js';
import { EXIT, parsed, UsageError, type Io } from './command.js';
import { columns, rate, wholeOf, Progress } from './terminal.js';
import { isExternal, withFile } from './sizing.js';
import { planReplicas, nameOf, type ReplicaPlan, setupOf } from '../app/replica-plans.js';
import { COMMANDS } from './command-table.js';

type Settings = Pick<Config, 'models' | 'dataDir' | 'engine'>;

const ENGINE = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

const MOST_SECONDS = 60;

/** The longest time for an engine to exit, ms. */
const CLOSE_MS = 2000;

interface Measured extends Figures {
  readonly id: string;
  readonly kind: string;
  readonly gpu: string | false;
  readonly threads: number;
  readonly seats: number;
  /** From the fork until it was ready. */
  readonly loadMs: number;
}

/** Resolves with the exit code. Rejects when a model cannot be loaded or measured. */
export async function bench(config: Settings, args: readonly string[], io: Io): Promise<number> {
  const { values, operands } = parsed(COMMANDS.bench, args);
  const ms = wholeOf('--seconds', values.seconds ?? '3', 1, MOST_SECONDS) * 1000;
  if (operands.some((id) => !config.models.some((model) => model.id === id))) {
    throw new UsageError(`bench: there is no such model; there are ${config.models.map(({ id }) => id).join(', ')}`);
  }
  const models = config.models.filter(({ id }) => operands.length === 0 || operands.includes(id));
  const away = models.find(isExternal);
  if (away) throw new Error(`model ${away.id} is computed elsewhere, and this measures engines of this machine`);
  const bar = new Progress(io.clock, io.terminal);
  try {
    const all: Measured[] = [];
    for (const model of models.map(withFile)) {
      for (const replica of await replicasToBench(model)) all.push(await benchOf(replica, config, ms, io, bar));
    }
    bar.clear();
    io.out(values.json ? `${JSON.stringify(all, null, 2)}\n` : text(all));
    return EXIT.done;
  } finally {
    bar.clear();
  }
}

interface ReplicaToBench {
  /** The model's, with the replica's name where there are others. */
  readonly id: string;
  readonly model: ModelConfig;
  readonly plan: ReplicaPlan;
}

/** Of a model's replicas one of each kind: others with as many seats, tokens, threads and devices, on the same cores, would give the same. */
async function replicasToBench(model: ModelConfig): Promise<ReplicaToBench[]> {
  const planned = await planReplicas(model);
  if (planned.kind === 'unfit') throw new Error(`model ${model.id}: ${planned.why}`);
  const kinds = new Map<string, ReplicaToBench>();
  for (const [index, plan] of planned.replicas.entries()) {
    const { seats, contextPerSeat, threads, devices, cores = '' } = plan;
    const kind = [seats, contextPerSeat, threads, devices.length, cores].join(' ');
    const id = planned.replicas.length === 1 ? model.id : `${model.id}, ${nameOf(index, devices)}`;
    if (!kinds.has(kind)) kinds.set(kind, { id, model, plan });
  }
  return [...kinds.values()];
}

async function benchOf(
  { id, model, plan }: ReplicaToBench,
  { engine }: Settings,
  ms: number,
  { clock }: Io,
  bar: Progress,
): Promise<Measured> {
  const { kind } = model;
  const { seats, contextPerSeat, threads, cores, environment } = plan;
  bar.show(`loading ${id}`, 0);
  const from = clock.now();
  const setup = {
    ...setupOf(model),
    seats,
    contextPerSeat,
    threads,
    ...(cores !== undefined && { cores }),
    template: templateOf(model),
    stepMs: model.stepMs,
    prefillShare: model.prefillShare,
    // Each prompt must be evaluated, not reused.
    prefixReuse: 'off' as const,
    heartbeatMs: HEARTBEAT_MS,
    ...(engine.checkMemory && { memory: { mappedElsewhere: 0 } }),
  };
  const opened = openChild({ entry: ENGINE, setup, environment, timing: engine, clock });
  try {
    const facts = await opened.ready;
    const loadMs = Math.round(clock.now() - from);
    const { mux } = opened.child;
    const figures = await measure({ facts, run: mux.run.bind(mux) }, kind, ms, clock, (share) =>
      bar.show(`measuring ${id}`, share),
    );
    return { id, kind, gpu: facts.gpu, threads: facts.threads, seats, loadMs, ...figures };
  } catch (error) {
    throw new Error(`model ${id}: ${error instanceof Error ? error.message : 'failed'}`, { cause: error });
  } finally {
    await opened.child.close(CLOSE_MS);
  }
}

/** `ready` rejects if the engine ends first; if it ends later, its jobs fail. */
function openChild(options: ConstructorParameters<typeof EngineChild>[0]): {
  readonly child: EngineChild;
  readonly ready: Promise<EngineFacts>;
} {
  let settle: (facts: EngineFacts) => void = () => undefined;
  let refuse: (error: Error) => void = () => undefined;
  const ready = new Promise<EngineFacts>((resolve, reject) => {
    settle = resolve;
    refuse = reject;
  });
  const child = new EngineChild(options, {
    ready: settle,
    ended: ({ reason, detail, hint }) => {
      refuse(new Error([`the engine ended (${reason})`, detail, hint].filter(Boolean).join(': ')));
      child.mux.lost('lost');
    },
    capacity: { seats: () => undefined, unconfirmed: () => undefined },
    serverProblem: () => undefined,
    threw: () => undefined,
    failed: () => undefined,
  });
  return { child, ready };
}

function text(all: readonly Measured[]): string {
  const rows = all.map(({ id, gpu, threads, seats, loadMs, ...figures }) => [
    id,
    gpu === false ? `CPU, ${threads} threads` : gpu,
    String(seats),
    `${(loadMs / 1000).toFixed(1)} s`,
    rate(figures.promptTokensPerSecond),
    figures.replyTokensPerSecond ? rate(figures.replyTokensPerSecond.oneSeat) : '-',
    figures.replyTokensPerSecond ? rate(figures.replyTokensPerSecond.allSeats) : '-',
    figures.decisionsPerSecond === undefined ? '-' : rate(figures.decisionsPerSecond),
  ]);
  const head = [
    'MODEL',
    'ON',
    'SEATS',
    'LOADED IN',
    'PROMPT TOK/S',
    'TOK/S, 1 SEAT',
    'TOK/S, ALL SEATS',
    'DECISIONS/S',
  ];
  return columns([head, ...rows]);
}
