/** From a setup to a server that is running and was checked to have the same model. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ServedModel } from '../protocol/inspect-messages.js';
import { serverKey, type EngineFacts, type RemoteSetup } from '../protocol/setup.js';
import { LoadFailure } from '../llama/load-failure.js';
import { beyondTrained, loadTokenFile, type TokenFile } from '../llama/model-tokens.js';
import type { Clock } from '../protocol/clock.js';
import { makeDecisionPrompt } from '../prompt/decision-prompt.js';
import { promptVersionOf, makePromptParts } from '../prompt/prompt-parts.js';
import { type PromptParts, chatPrompt, promptPieces } from '../prompt/chat-prompt.js';
import type { Adapter, Opened, ServerFacts, AdapterParts, ProbeMessage } from './adapter.js';
import { ServerClient } from './server-client.js';
import { LlamaServer } from './llama-server.js';
import { Sglang } from './sglang.js';
import { Vllm } from './vllm.js';
import { promptIds } from '../protocol/prompt.js';

/** Between two questions whether a server is up, ms. The sidecar bounds the whole start. */
const AGAIN_MS = 500;

/** A reason to wait is reported again after this long, ms. */
const REPEAT_MS = 60_000;

/** Between reports of different reasons, ms, at least: a server that changes between two must not fill the log. */
const CHANGE_MS = 5000;

/** Slots of a llama-server that was started without -np. Their KV memory is then shared. */
const DEFAULT_SLOTS = 4;

export interface StartedServer extends Omit<RemoteParts, 'prompts'> {
  readonly server: ServerFacts;
  readonly facts: EngineFacts;
}

/**
 * Waits for the server; meanwhile `waits` is called with the reason. Rejects with a {@link LoadFailure} if the server cannot serve
 * the model as it is set up.
 */
export async function startRemote(
  setup: ServedModel,
  remote: RemoteSetup,
  clock: Clock,
  waits: (reason: string) => void,
): Promise<StartedServer> {
  const parts = await partsOf(setup, remote);
  return await checked(setup, remote, parts, await waitForServer(parts.adapter, remote, clock, waits));
}

/** Settles once the server can be asked; as {@link startRemote}. */
export async function waitForServer(
  adapter: Pick<Adapter, 'open'>,
  remote: RemoteSetup,
  clock: Clock,
  waits: (reason: string) => void,
): Promise<Opened> {
  const report = new WaitReport(clock, waits);
  for (;;) {
    const opened = await adapter.open();
    if (opened.kind !== 'not-yet') return opened;
    report.waits(aboutServer(remote, opened.says));
    await new Promise<void>((again) => clock.after(AGAIN_MS, again));
  }
}

/** What a server reports of itself. @throws {LoadFailure} It cannot be used. */
export function factsOfOpened(remote: RemoteSetup, opened: Opened): ServerFacts {
  if (opened.kind === 'open') return opened.facts;
  // Another server may be started there later.
  throw new LoadFailure(aboutServer(remote, opened.kind === 'unfit' ? opened.why : opened.says), true);
}

/** The connections to a server, and what differs between kinds of servers. @throws {LoadFailure} Its key cannot be read. */
export function connect(remote: RemoteSetup): { readonly client: ServerClient; readonly adapter: Adapter } {
  const client = new ServerClient({ ...remote, key: keyOf(remote) });
  return { client, adapter: adapterFor({ client, setup: remote }) };
}

/** Asks the server once, as a start does. Rejects with a {@link LoadFailure} if the model could not be served now. */
export async function checkRemote(setup: ServedModel, remote: RemoteSetup): Promise<StartedServer> {
  const parts = await partsOf(setup, remote);
  return await checked(setup, remote, parts, await parts.adapter.open());
}

/** One line for the operator: which external server it is about, and `what`. */
export function aboutServer({ url, socket }: Pick<RemoteSetup, 'url' | 'socket'>, what: string): string {
  return `the external server at ${socket ?? url}: ${what}`;
}

/** Passes on a reason when it changes, but not sooner than {@link CHANGE_MS} after the last one, and once a minute. */
class WaitReport {
  readonly #clock: Clock;
  readonly #report: (reason: string) => void;
  #reported = '';
  #at = -Infinity;

  constructor(clock: Clock, report: (reason: string) => void) {
    this.#clock = clock;
    this.#report = report;
  }

  waits(reason: string): void {
    const now = this.#clock.now();
    if (now - this.#at < (reason === this.#reported ? REPEAT_MS : CHANGE_MS)) return;
    this.#reported = reason;
    this.#at = now;
    this.#report(reason);
  }
}

interface RemoteParts {
  readonly client: ServerClient;
  readonly adapter: Adapter;
  readonly file: TokenFile;
  readonly prompts: PromptParts;
}

async function partsOf(setup: ServedModel, remote: RemoteSetup): Promise<RemoteParts> {
  const file = await loadTokenFile(setup.file);
  const made = makePromptParts(file.vocabulary, setup.template);
  if (made.kind === 'bad') throw new LoadFailure(made.problem);
  const decision = setup.kind === 'decision' ? makeDecisionPrompt(made.parts) : undefined;
  if (decision?.kind === 'bad') throw new LoadFailure(decision.problem);
  return { ...connect(remote), file, prompts: made.parts };
}

async function checked(
  setup: ServedModel,
  remote: RemoteSetup,
  { client, adapter, file, prompts }: RemoteParts,
  opened: Opened,
): Promise<StartedServer> {
  // Another server may be started there later.
  const unfit = (why: string): LoadFailure => new LoadFailure(aboutServer(remote, why), true);
  const server = factsOfOpened(remote, opened);
  const vocabulary = file.vocabulary.size;
  const problem = problemOf(setup, server, vocabulary) ?? (await differenceOf(prompts, adapter));
  if (problem !== undefined) throw unfit(problem);
  const warnings = warningsOf(setup, remote, server, file);
  const facts: EngineFacts = {
    seats: setup.seats,
    contextPerSeat: setup.contextPerSeat,
    ...(remote.tokens !== undefined && { tokens: remote.tokens }),
    vocabulary,
    weightVersion: createHash('sha256').update(`${remote.kind}\n${server.identity}`).digest('hex'),
    promptVersion: promptVersionOf(file.vocabulary.hash, setup.template),
    threads: 0,
    gpu: remote.kind,
    confirmsCancels: true,
    ...(warnings.length > 0 && { warnings }),
  };
  return { client, adapter, file, server, facts };
}

/** Undefined if none is sent. */
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

function problemOf(setup: ServedModel, server: ServerFacts, vocabulary: number): string | undefined {
  const { slots, contextPerSlot, vocabulary: theirs } = server;
  if (slots !== undefined && slots < setup.seats) {
    return `it has ${slots} slots, fewer than the ${setup.seats} seats`;
  }
  if (contextPerSlot !== undefined && contextPerSlot < setup.contextPerSeat) {
    return `its sequences have ${contextPerSlot} tokens, fewer than contextPerSeat (${setup.contextPerSeat})`;
  }
  if (theirs !== undefined && theirs !== vocabulary) {
    return `its vocabulary has ${theirs} tokens, and that of the file has ${vocabulary}`;
  }
  return undefined;
}

/** What may end requests later, though the server serves the model now. */
function warningsOf(
  { seats, contextPerSeat }: ServedModel,
  { kind, tokens }: RemoteSetup,
  { slots, contextPerSlot }: ServerFacts,
  { trainedContext }: TokenFile,
): string[] {
  const needed = seats * contextPerSeat;
  // It does not report whether its sequences share one KV memory. Its default does, and a sequence then counts all of it as its own.
  const mayShare = kind === 'llama-server' && slots === DEFAULT_SLOTS && tokens === undefined;
  return [
    ...(mayShare && contextPerSlot !== undefined && contextPerSlot < needed
      ? [
          `it has ${slots} slots of ${contextPerSlot} tokens, as a llama-server has without -np, whose slots share these ${contextPerSlot} ` +
            `tokens (--kv-unified), and the ${seats} seats may need ${needed}: an overflow ends all requests. Start it with ` +
            `-np ${seats} -c ${needed}, and set engine.tokens to ${needed}`,
        ]
      : []),
    ...beyondTrained(contextPerSeat, trainedContext),
  ];
}

const ADAPTERS: Readonly<Record<RemoteSetup['kind'], new (parts: AdapterParts) => Adapter>> = {
  'llama-server': LlamaServer,
  vllm: Vllm,
  sglang: Sglang,
};

/** The adapter for a kind of server. */
export function adapterFor(parts: AdapterParts): Adapter {
  return new ADAPTERS[parts.setup.kind](parts);
}

/* Compares our prompts with the server's own, so that its model is given what its template makes of a conversation. */

/** Conversations of our own, which show most differences of templates and tokenizers. */
const PROBES: Readonly<Record<string, readonly ProbeMessage[]>> = {
  'one message': [{ role: 'user', content: 'What is the capital of France?' }],
  'a system message': [
    { role: 'system', content: 'You answer in one sentence.' },
    { role: 'user', content: 'Why is the sky blue?' },
  ],
  'three turns': [
    { role: 'user', content: 'Name a prime number.' },
    { role: 'assistant', content: '17' },
    { role: 'user', content: 'And the next one?' },
  ],
  'text of many kinds': [
    {
      role: 'user',
      content: 'naïve café, 東京, Привет, 🙂👩‍🚀; 3.14159 + 0x2A = ?\n\n\tif (a[i] != b) { return "x"; }   done',
    },
  ],
};

const NO_TOKENS = 'it does not tokenize the probes';

/** One line for the operator; undefined where there is none. A conversation that neither side's template expresses is no difference. */
async function differenceOf(parts: PromptParts, adapter: Pick<Adapter, 'promptIds'>): Promise<string | undefined> {
  let compared = 0;
  for (const [name, messages] of Object.entries(PROBES)) {
    const made = chatPrompt(parts, { messages }, { addGenerationPrompt: true }, Infinity);
    const text = textOf(parts, messages);
    const theirs = await adapter.promptIds({ messages, text });
    if (made.kind !== 'prompt' && theirs === undefined) continue;
    if (theirs === undefined) return NO_TOKENS;
    if (made.kind !== 'prompt') return `our template does not express ${name}, the server's does`;
    const ours = promptIds(made.prompt);
    const at = ours.findIndex((token, i) => token !== theirs[i]);
    if (at >= 0 || ours.length !== theirs.length) {
      const where = at >= 0 ? at : ours.length;
      const lengths = `${ours.length} tokens here, ${theirs.length} there`;
      return `the prompt of ${name} has ${lengths}, and differs from token ${where} on (${ours[where] ?? 'end'} here, ${theirs[where] ?? 'end'} there)`;
    }
    compared += 1;
  }
  return compared > 0 ? undefined : NO_TOKENS;
}

/** As tokenizePrompt has it: a first token that the vocabulary wants is there once. */
function textOf(parts: PromptParts, messages: readonly ProbeMessage[]): string {
  const made = promptPieces(parts, { messages }, { addGenerationPrompt: true });
  const text = made.kind === 'pieces' ? made.pieces.join('') : '';
  const { bos, addBos } = parts.vocabulary;
  return addBos && bos && !text.startsWith(bos.text) ? bos.text + text : text;
}
