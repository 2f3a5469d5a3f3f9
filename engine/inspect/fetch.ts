/**
 * Gets a model file by node-llama-cpp's own downloader: it resolves `hf:` names and addresses, downloads in parallel parts and
 * puts split files together. The bytes go to a folder of their own beside the place they are meant for, and are linked there
 * when they are whole, so that no name ever holds half a file and nothing that exists is overwritten.
 */
import { link, mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { createModelDownloader, type ModelDownloader } from 'node-llama-cpp';
import type { Fetched } from '../inspect-protocol.js';
import { readModelHead } from './head.js';

/** The downloader tries an address that does not answer for twelve minutes; ours is the patience of somebody who waits, ms. */
const ANSWER_MS = 20_000;

/** Without a byte for this long the download is given up, ms. */
const STALL_MS = 60_000;

/** What a network says, in words. */
const NETWORK: Readonly<Record<string, string>> = {
  ENOTFOUND: 'its host is not known',
  EAI_AGAIN: 'its host’s name cannot be looked up: is there a network?',
  ECONNREFUSED: 'its host refuses the connection',
  ECONNRESET: 'its host ended the connection',
  ENETUNREACH: 'there is no network to its host',
  EHOSTUNREACH: 'its host cannot be reached',
  ETIMEDOUT: 'its host does not answer',
};

const STATUSES: Readonly<Record<number, string>> = {
  401: 'its host asks who you are (401): for Hugging Face, set HF_TOKEN',
  403: 'its host does not give it to you (403)',
  404: 'its host has no such file (404)',
};

export type Progress = (done: number, total: number) => void;

class Refusal extends Error {}

/**
 * Fetches `uri` into `dir`, which is made if need be. Expected failures are returned, without the address: it may hold a
 * secret. When `signal` fires, it rejects once nothing of the download is left.
 */
export async function fetchModel(uri: string, dir: string, progress: Progress, signal: AbortSignal): Promise<Fetched> {
  let staging: string | undefined;
  try {
    await mkdir(dir, { recursive: true });
    staging = await mkdtemp(join(dir, '.adding-'));
    await reach(uri, signal);
    return await fetchInto(uri, dir, staging, progress, signal);
  } catch (error) {
    signal.throwIfAborted();
    return { kind: 'refused', problem: wordsFor(error) };
  } finally {
    if (staging !== undefined) await rm(staging, { recursive: true, force: true });
  }
}

/** Whether the host of an address answers at all; what it answers is the downloader's business, which may have tokens for it. */
async function reach(uri: string, signal: AbortSignal): Promise<void> {
  if (!/^https?:/i.test(uri)) return;
  if (!URL.canParse(uri)) throw new Refusal('it is no address');
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]);
  const response = await fetch(uri, { headers: { range: 'bytes=0-3' }, signal: bounded });
  await response.body?.cancel();
}

async function fetchInto(
  uri: string,
  dir: string,
  staging: string,
  progress: Progress,
  signal: AbortSignal,
): Promise<Fetched> {
  const idle = new IdleLimit(ANSWER_MS);
  let most = 0;
  let downloader: ModelDownloader | undefined;
  try {
    downloader = await idle.over(
      createModelDownloader({
        modelUri: uri,
        dirPath: staging,
        skipExisting: false,
        onProgress: ({ downloadedSize, totalSize }) => {
          if (downloadedSize > most) idle.restart(STALL_MS);
          most = Math.max(most, downloadedSize);
          progress(downloadedSize, totalSize);
        },
      }),
    );
    const there = await alreadyThere(downloader, dir);
    if (there) return there;
    idle.restart(STALL_MS);
    await idle.over(downloader.download({ signal }));
    const head = await readModelHead(downloader.entrypointFilePath);
    if (head.kind === 'bad') throw new Refusal(`what came is no model that can be served: ${head.problem}`);
    for (const { fileName } of downloader.filesInfo) await place(join(staging, fileName), join(dir, fileName));
    const file = join(dir, downloader.entrypointFilename);
    return { kind: 'fetched', file, bytes: (await stat(file)).size, fresh: true };
  } finally {
    idle.stop();
    // Also after a download that is done: it lets go of its file.
    await downloader?.cancel().catch(() => undefined);
  }
}

/** A file of the same name: of the same size it is taken for the same file, otherwise it is in the way. */
async function alreadyThere(downloader: ModelDownloader, dir: string): Promise<Fetched | undefined> {
  for (const { fileName, totalSize } of downloader.filesInfo) {
    const size = await sizeOf(join(dir, fileName));
    if (size === undefined) continue;
    if (downloader.totalFiles > 1 || size !== totalSize) throw new Refusal(inTheWay(fileName));
    return { kind: 'fetched', file: join(dir, fileName), bytes: size, fresh: false };
  }
  return undefined;
}

function inTheWay(name: string): string {
  return `a file ${basename(name)} is there already and is another one: move it away, or use another --dir`;
}

/** Gives a whole file its name, unless something has it. */
async function place(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw new Refusal(inTheWay(to));
    throw error;
  }
}

async function sizeOf(file: string): Promise<number | undefined> {
  return await stat(file).then(
    ({ size }) => size,
    () => undefined,
  );
}

/** Gives up on work that is not heard of for a while. */
class IdleLimit {
  #timer: NodeJS.Timeout | undefined;
  #late: () => void = () => undefined;

  constructor(ms: number) {
    this.restart(ms);
  }

  restart(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#late(), ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Settles as `work` does, or rejects when the limit passes first: then `work` goes on unheard. */
  async over<T>(work: Promise<T>): Promise<T> {
    const late = new Promise<never>((_, reject) => {
      this.#late = () => reject(new Refusal(NETWORK['ETIMEDOUT'] ?? ''));
    });
    return await Promise.race([work, late]);
  }
}

function wordsFor(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  const { code, statusCode, cause, name } = error as NodeJS.ErrnoException & { statusCode?: number };
  if (name === 'TimeoutError') return NETWORK['ETIMEDOUT'] ?? '';
  if (statusCode !== undefined) return STATUSES[statusCode] ?? `its host answers ${statusCode}`;
  const reason = code ?? (cause as NodeJS.ErrnoException | undefined)?.code;
  if (reason !== undefined) return NETWORK[reason] ?? `it cannot be fetched (${reason})`;
  return error instanceof Error && /fetch/.test(error.message)
    ? 'its host cannot be reached: is there a network?'
    : 'it cannot be fetched';
}
