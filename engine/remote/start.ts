/** From a setup to a server that is running and was checked to have the same model. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { serverKey } from '../protocol/server-key.js';
import { LoadFailure } from '../llama/load-failure.js';
import { loadTokenFile, type TokenFile } from '../llama/model-tokens.js';
import type { Clock } from '../protocol/clock.js';
import type { EngineFacts, EngineSetup, RemoteSetup } from '../protocol/setup.js';
import { makeDecisionPrompt } from '../prompt/decision-prompt.js';
import { promptVersionOf } from '../prompt/prompt-version.js';
import { makePromptParts } from '../prompt/prompt-parts.js';
import type { Adapter, ServerFacts } from './adapter.js';
import { adapterFor } from './adapters.js';
import { compare } from './parity.js';
import { ServerClient } from './server-client.js';

/** Between two questions whether a server is up, ms. The sidecar bounds the whole start. */
const AGAIN_MS = 500;

export interface StartedServer {
  readonly client: ServerClient;
  readonly adapter: Adapter;
  readonly file: TokenFile;
  readonly server: ServerFacts;
  readonly facts: EngineFacts;
}

/** Waits for the server. Rejects with a {@link LoadFailure} if it cannot serve the model as it is set up. */
export async function startRemote(setup: EngineSetup, remote: RemoteSetup, clock: Clock): Promise<StartedServer> {
  const file = await loadTokenFile(setup.file);
  const made = makePromptParts(file.vocabulary, setup.template);
  if (made.kind === 'bad') throw new LoadFailure(made.problem);
  const decision = setup.kind === 'decision' ? makeDecisionPrompt(made.parts) : undefined;
  if (decision?.kind === 'bad') throw new LoadFailure(decision.problem);
  const client = new ServerClient({ ...remote, key: keyOf(remote) });
  const vocabulary = file.vocabulary.size;
  const adapter = adapterFor({ client, setup: remote });
  const server = await untilOpen(adapter, clock);
  const unfit = problemOf(setup, server, vocabulary);
  if (unfit !== undefined) throw different(unfit);
  const parity = await compare(made.parts, adapter);
  if (parity.kind === 'unknown') throw different('it does not tokenize the probes');
  if (parity.kind === 'different') throw different(parity.how);
  const facts: EngineFacts = {
    model: file.name,
    seats: setup.seats,
    contextPerSeat: setup.contextPerSeat,
    ...(remote.tokens !== undefined && { tokens: remote.tokens }),
    vocabulary,
    weightVersion: createHash('sha256').update(`${remote.kind}\n${server.identity}`).digest('hex'),
    promptVersion: promptVersionOf(file.vocabulary.hash, setup.template),
    labelsVerified: setup.kind === 'decision',
    threads: 0,
    gpu: remote.kind,
    confirmsCancels: true,
  };
  return { client, adapter, file, server, facts };
}

/** Undefined: none is sent. */
function keyOf({ secretFile }: RemoteSetup): string | undefined {
  if (secretFile === undefined) return undefined;
  let text: string;
  try {
    text = readFileSync(secretFile, 'utf8');
  } catch (error) {
    throw new LoadFailure(
      `engine.secretFile cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`,
      true,
    );
  }
  const key = serverKey(text);
  if (key === undefined) throw new LoadFailure('engine.secretFile has no key in its first line');
  return key;
}

async function untilOpen(adapter: Adapter, clock: Clock): Promise<ServerFacts> {
  for (;;) {
    const opened = await adapter.open();
    if (opened.kind === 'open') return opened.facts;
    if (opened.kind === 'unfit') throw different(opened.why);
    await new Promise<void>((again) => clock.after(AGAIN_MS, again));
  }
}

function problemOf(setup: EngineSetup, server: ServerFacts, vocabulary: number): string | undefined {
  const { slots, contextPerSlot, vocabulary: theirs } = server;
  if (slots !== undefined && slots < setup.seats) return `it has ${slots} slots, fewer than the ${setup.seats} seats`;
  if (contextPerSlot !== undefined && contextPerSlot < setup.contextPerSeat) {
    return `its sequences have ${contextPerSlot} tokens, fewer than contextPerSeat (${setup.contextPerSeat})`;
  }
  if (theirs !== undefined && theirs !== vocabulary) {
    return `its vocabulary has ${theirs} tokens, and that of the file has ${vocabulary}`;
  }
  return undefined;
}

/** Another server may be started there later. */
function different(why: string): LoadFailure {
  return new LoadFailure(`the external server: ${why}`, true);
}
