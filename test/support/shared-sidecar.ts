/**
 * One sidecar on real engines for all test files of a process. A separate one takes a file five seconds of processor
 * time to start, and most files that use a model need no special one. A file that runs alone starts it for itself.
 */
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { decisionsPart, enginePart } from './llama-servers.js';
import { embeddedTestModel, testModel } from './models.js';
import { PATIENT_MS } from './patience.js';
import { processRoot } from './process-root.js';
import { CHAT, DECIDE, Sidecar } from './sidecar.js';

/** The embedded test model with longer contexts than {@link CHAT}. */
export const WIDE_CHAT = 'ra-tiny-wide';
/** A decision model with a context that few questions fit into. */
export const NARROW_DECIDE = 'ra-tiny-narrow';
/** The model that TypeSafe’s clients request by default. */
export const TYPESAFE = 'jev-latest';
export const SEEDLING_CHAT = 'seedling-chat';
export const SEEDLING_DECIDE = 'seedling-decide';

/** Tokens of a seat of {@link CHAT}. */
export const CHAT_CONTEXT = 2048;

/** The chat models, in the order of their ids’ list. */
export const CHAT_MODELS = [CHAT, WIDE_CHAT, SEEDLING_CHAT];

let started: Promise<Sidecar> | undefined;

/** Started on the first call and stopped when the process’ tests have ended. Its counters include all files. */
export function sharedSidecar(): Promise<Sidecar> {
  return (started ??= start());
}

async function start(): Promise<Sidecar> {
  const file = await embeddedTestModel();
  // What is asked of these does not depend on their answers, and a token takes it a tenth of the time.
  const decides = await testModel();
  const models = [
    { id: CHAT, kind: 'chat', file, seats: 8, contextPerSeat: CHAT_CONTEXT },
    { id: WIDE_CHAT, kind: 'chat', file, seats: 4, contextPerSeat: 16_000 },
    { id: DECIDE, kind: 'decision', file: decides, seats: 2, contextPerSeat: 8192 },
    { id: NARROW_DECIDE, kind: 'decision', file: decides, seats: 1, contextPerSeat: 256 },
    { id: TYPESAFE, kind: 'decision', file: decides, seats: 2, contextPerSeat: 8192 },
    { id: SEEDLING_CHAT, kind: 'chat', file: EMBEDDED_MODEL, seats: 4, contextPerSeat: 2048 },
    { id: SEEDLING_DECIDE, kind: 'decision', file: EMBEDDED_MODEL, seats: 2, contextPerSeat: 8192 },
  ];
  return Sidecar.start(processRoot, {
    config: {
      // No test of these is about a wait that is too long, and many ask at once.
      queue: { maxWaitMs: PATIENT_MS, waitingPerSeat: 100 },
      ...decisionsPart(),
      models: models.map((model) => ({ ...model, ...enginePart(model.file) })),
    },
  });
}
