/**
 * An engine process whose model is computed by an external server: controlled over the messages of protocol/messages.ts
 * as engine/main.ts is, so that the sidecar's supervisor, queue and records treat both alike. It ends when its server
 * is gone or is another one, and the next process waits for it.
 */
import '../protocol/leave-signals.js';
import { LoadFailure } from '../llama/load-failure.js';
import { ENGINE_EXIT, NO_REPORT, PROTOCOL_VERSION, type FromEngine, type ToEngine } from '../protocol/messages.js';
import { overwriteGarbage } from '../protocol/process-settings.js';
import { isPooling, type EngineSetup, type RemoteSetup } from '../protocol/setup.js';
import { Shell } from '../protocol/shell.js';
import { processClock } from '../protocol/clock.js';
import type { Emit } from '../scheduler/outbox.js';
import { PoolingLoop } from '../scheduler/pooling-loop.js';
import { RemoteLoop } from './remote-loop.js';
import { startRemotePooling, type StartedPooling } from './remote-pooling.js';
import { aboutServer, startRemote, type StartedServer } from './start.js';

/** A server that answers nothing for this long is treated as gone, ms. */
const SILENT_MS = 10_000;

const shell: Shell<ToEngine, FromEngine> = new Shell(PROTOCOL_VERSION, {
  start: ({ setup }) => void start(setup),
  messages: {
    generate: ({ id, job }) => loop?.generate(id, job),
    score: ({ id, job }) => loop?.score(id, job),
    embed: ({ id, job }) => {
      if (pooling) pooling.embed(id, job);
      else shell.refuse();
    },
    cancel: ({ id }) => (loop ?? pooling)?.cancel(id),
    // Its weights are on the server, and no job here has images: models elsewhere are sent none.
    weights: () => shell.refuse(),
    embeddings: () => shell.refuse(),
    // A server cannot be asked to drop what it keeps of an account.
    forget: ({ scope }) => (scope === undefined ? overwriteGarbage() : undefined),
    limit: (message) => loop?.limit(message.id, message),
    reduceSeats: ({ id }) => loop?.reduceSeats(id),
    shutdown: () => void end(ENGINE_EXIT.done),
  },
});

const emit: Emit = (step, outputs, held) => shell.send({ kind: 'step', step, outputs, held });

let loop: RemoteLoop | undefined;
/** In its place, of a model that makes vectors. */
let pooling: PoolingLoop | undefined;
let receivedAt = 0;

async function start(setup: EngineSetup): Promise<void> {
  setInterval(() => {
    const report = loop ? { ...NO_REPORT, live: loop.live, tokens: loop.held } : (pooling?.report ?? NO_REPORT);
    shell.send({ kind: 'heartbeat', step: (loop ?? pooling)?.steps ?? 0, ...report });
  }, setup.heartbeatMs);
  try {
    if (setup.remote === undefined) throw new LoadFailure('no server is named');
    const { remote } = setup;
    if (isPooling(setup.kind)) {
      await startPooling(setup, remote);
      return;
    }
    const server = await startRemote(setup, remote, processClock, (reason) =>
      shell.send({ kind: 'serverProblem', reason }),
    );
    const { adapter, client, file } = server;
    receivedAt = processClock.now();
    loop = new RemoteLoop(
      {
        client,
        adapter,
        tokens: file.tokens,
        longestTokenBytes: file.vocabulary.longestTokenBytes,
        clock: processClock,
      },
      {
        seats: setup.seats,
        tokens: remote.tokens ?? setup.seats * setup.contextPerSeat,
        cancelWaitMs: remote.cancelWaitMs,
        silentMs: remote.silentMs,
        tokenMs: remote.tokenMs,
        emit,
        capacity: (seats, unconfirmed) => shell.send({ kind: 'capacity', seats, unconfirmed }),
        suspect: () => suspect(server, remote),
      },
    );
    shell.send({ kind: 'ready', facts: server.facts });
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown failure';
    const mayMend = error instanceof LoadFailure && error.mayMend;
    shell.send({ kind: 'unable', reason, mayMend }, () => process.exit(ENGINE_EXIT.unable));
  }
}

async function startPooling(setup: EngineSetup, remote: RemoteSetup): Promise<void> {
  const started: StartedPooling = await startRemotePooling(setup, remote, {
    clock: processClock,
    waits: (reason) => shell.send({ kind: 'serverProblem', reason }),
    suspect: () => suspect(started, remote),
  });
  receivedAt = processClock.now();
  pooling = new PoolingLoop(started.pooling, started.limits, emit);
  shell.send({ kind: 'ready', facts: started.facts });
}

/** Ends the process, and with it all jobs, if the server is gone or has become another. */
async function suspect(
  { adapter, server }: Pick<StartedServer, 'adapter' | 'server'> | StartedPooling,
  remote: RemoteSetup,
): Promise<void> {
  const steps = (loop ?? pooling)?.steps;
  const opened = await adapter.open();
  const now = processClock.now();
  if ((loop ?? pooling)?.steps !== steps) receivedAt = now;
  if (opened.kind === 'open' && opened.facts.identity === server.identity) receivedAt = now;
  else if (opened.kind !== 'not-yet' || opened.why !== 'slow' || now - receivedAt > SILENT_MS) {
    const what =
      opened.kind === 'open'
        ? 'it is another one now, or its settings were changed'
        : 'says' in opened
          ? opened.says
          : opened.why;
    shell.send({ kind: 'serverProblem', reason: aboutServer(remote, what) });
    await end(ENGINE_EXIT.lost);
  }
}

/** What was sent leaves first. Settles only if the process stays. */
async function end(code: number): Promise<never> {
  loop?.close();
  loop = pooling = undefined;
  shell.send({ kind: 'heartbeat', step: 0, ...NO_REPORT }, () => process.exit(code));
  return await new Promise<never>(() => undefined);
}
