/**
 * Gets a model file by node-llama-cpp's own downloader: it resolves `hf:` names and addresses, downloads in parallel parts and
 * puts split files together. The bytes go to a folder of their own beside the place they are meant for, and are linked there
 * when they are whole, so that no name ever holds half a file and nothing that exists is overwritten.
 */
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelDownloader } from 'node-llama-cpp';
import type { Fetched } from '../../protocol/inspect-messages.js';
import { readModelHead } from './head.js';
import { areThere, placeAll } from './place.js';
import { Refusal, SILENT, wordsFor } from './refusal.js';

/** The downloader tries an address that does not answer for twelve minutes; ours is what a waiting operator accepts, ms. */
const ANSWER_MS = 20_000;

/** Without a byte for this long the download is given up, ms. */
const STALL_MS = 60_000;

export type Progress = (done: number, total: number) => void;

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
    // Only here, since the package takes long to import.
    const { createModelDownloader } = await import('node-llama-cpp');
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
    const parts = downloader.filesInfo.map(({ fileName, totalSize }) => ({ name: fileName, bytes: totalSize }));
    const file = join(dir, downloader.entrypointFilename);
    if (await areThere(parts, dir)) return { kind: 'fetched', file, bytes: (await stat(file)).size, fresh: false };
    idle.restart(STALL_MS);
    await idle.over(downloader.download({ signal }));
    const head = await readModelHead(downloader.entrypointFilePath);
    if (head.kind === 'bad') throw new Refusal(`what came is no model that can be served: ${head.problem}`);
    await placeAll(parts, staging, dir);
    return { kind: 'fetched', file, bytes: (await stat(file)).size, fresh: true };
  } finally {
    idle.stop();
    // Also after a download that is done: it closes its file.
    await downloader?.cancel().catch(() => undefined);
  }
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

  /** Settles as `work` does, or rejects when the limit passes first: then `work` continues and its result is ignored. */
  async over<T>(work: Promise<T>): Promise<T> {
    const late = new Promise<never>((_, reject) => {
      this.#late = () => reject(new Refusal(SILENT));
    });
    return await Promise.race([work, late]);
  }
}
