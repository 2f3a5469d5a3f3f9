/**
 * An engine process whose model is computed by an external server: controlled over the messages of protocol/messages.ts
 * as engine/main.ts is, so that the sidecar's supervisor, queue and records treat both alike. It ends when its server
 * is gone or is another one, and the next process waits for it.
 */
import { LoadFailure } from '../llama/load-failure.js';
import { Link } from '../protocol/link.js';
import { ENGINE_EXIT, NO_REPORT, PROTOCOL_VERSION, type FromEngine, type ToEngine } from '../protocol/messages.js';
import { endAtOnce, endWithParent } from '../protocol/parent-watch.js';
import type { EngineSetup, RemoteSetup } from '../protocol/setup.js';
import '../protocol/group-signals.js';
import '../protocol/v8-flags.js';
import { processClock } from '../scheduler/clock.js';
import { RemoteLoop } from './remote-loop.js';
import { aboutServer, startRemote, type StartedServer } from './start.js';

type Body = FromEngine extends infer Message ? (Message extends { v: number } ? Omit<Message, 'v'> : never) : never;

/** A server that answers nothing for this long is treated as gone, ms. */
const SILENT_MS = 10_000;

endWithParent();

const link = Link.toParent({ message: (raw) => receive(raw as ToEngine | null | undefined), closed: endAtOnce });

let loop: RemoteLoop | undefined;
let started = false;
let receivedAt = 0;

function send(message: Body, then?: () => void): void {
  link.send({ v: PROTOCOL_VERSION, ...message }, then);
}

async function start(setup: EngineSetup): Promise<void> {
  setInterval(() => {
    const report = loop ? { ...NO_REPORT, live: loop.live, tokens: loop.held } : NO_REPORT;
    send({ kind: 'heartbeat', step: loop?.steps ?? 0, ...report });
  }, setup.heartbeatMs);
  try {
    if (setup.remote === undefined) throw new LoadFailure('no server is named');
    const { remote } = setup;
    const server = await startRemote(setup, remote, processClock, (reason) => send({ kind: 'serverProblem', reason }));
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
        emit: (step, outputs, held) => send({ kind: 'step', step, outputs, held }),
        capacity: (seats, unconfirmed) => send({ kind: 'capacity', seats, unconfirmed }),
        suspect: () => suspect(server, remote),
      },
    );
    send({ kind: 'ready', facts: server.facts });
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown failure';
    const mayMend = error instanceof LoadFailure && error.mayMend;
    send({ kind: 'unable', reason, mayMend }, () => process.exit(ENGINE_EXIT.unable));
  }
}

/** Ends the process, and with it all jobs, if the server is gone or has become another. */
async function suspect({ adapter, server }: StartedServer, remote: RemoteSetup): Promise<void> {
  const steps = loop?.steps;
  const opened = await adapter.open();
  const now = processClock.now();
  if (loop?.steps !== steps) receivedAt = now;
  if (opened.kind === 'open' && opened.facts.identity === server.identity) receivedAt = now;
  else if (opened.kind !== 'not-yet' || opened.why !== 'slow' || now - receivedAt > SILENT_MS) {
    const what =
      opened.kind === 'open'
        ? 'it is another one now, or its settings were changed'
        : 'says' in opened
          ? opened.says
          : opened.why;
    send({ kind: 'serverProblem', reason: aboutServer(remote, what) });
    await end(ENGINE_EXIT.lost);
  }
}

/** What was sent leaves first. Settles only if the process stays. */
async function end(code: number): Promise<never> {
  loop?.close();
  loop = undefined;
  send({ kind: 'heartbeat', step: 0, ...NO_REPORT }, () => process.exit(code));
  return await new Promise<never>(() => undefined);
}

function receive(message: ToEngine | null | undefined): void {
  if (message?.v !== PROTOCOL_VERSION) {
    process.exit(ENGINE_EXIT.protocol);
  }
  switch (message.kind) {
    case 'start':
      if (started) process.exit(ENGINE_EXIT.protocol);
      started = true;
      void start(message.setup);
      return;
    case 'generate':
      loop?.generate(message.id, message.job);
      return;
    case 'score':
      loop?.score(message.id, message.job);
      return;
    case 'cancel':
      loop?.cancel(message.id);
      return;
    case 'weights':
      // Its weights are on the server.
      process.exit(ENGINE_EXIT.protocol);
      break;
    case 'embeddings':
      // No job here has images: models elsewhere are sent none.
      process.exit(ENGINE_EXIT.protocol);
      break;
    case 'forget':
      // A server cannot be asked to drop what it keeps of an account.
      return;
    case 'reduceSeats':
      loop?.reduceSeats(message.id);
      return;
    case 'shutdown':
      void end(ENGINE_EXIT.done);
      return;
    default:
      message satisfies never;
      process.exit(ENGINE_EXIT.protocol);
  }
}
