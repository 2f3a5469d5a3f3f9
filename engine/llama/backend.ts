/**
 * Opens node-llama-cpp's addon for a backend without its `getLlama`: on Linux that first loads the addon in a process of its own,
 * which takes half a second of processor time at each start. The processes that load it here are children that the sidecar restarts,
 * so an addon that ends its process ends no more than that trial would.
 */
import type { LlamaOptions } from 'node-llama-cpp';
import type { EngineSetup, GpuBackend } from '../protocol/setup.js';
import { findAddon, loadAddon, shareAddon, type AddonFile } from './addon-file.js';
import type { LlamaLog } from './llama-log.js';
import { LoadFailure } from './load-failure.js';
import { checkServed } from './addon.js';
import { getLlamaGpuTypes, Llama, LlamaLogLevel } from './package.js';

/** What `getLlama` passes to it. Not public, so only the version whose source was read is served (addon.ts). */
interface Creates {
  readonly _create: (parts: {
    readonly bindings: unknown;
    readonly bindingPath: string;
    readonly extBackendsPath: string | undefined;
    readonly buildType: AddonFile['build'];
    readonly buildMetadata: unknown;
    readonly logLevel: LlamaLogLevel;
    readonly logger: NonNullable<LlamaOptions['logger']>;
    readonly maxThreads: number | undefined;
    readonly vramPadding: (total: number) => number;
    readonly ramPadding: (total: number) => number;
    readonly numa: false;
    readonly debug: false;
    readonly tempDir: false;
  }) => Promise<Llama>;
}

const silent = (): void => undefined;

/** Bytes of memory that `getLlama` leaves free where it computes what fits; its own defaults on Linux. */
const ramPadding = (total: number): number => Math.floor(Math.min(total / 4, 1 << 30));
const vramPadding = (total: number): number => Math.floor(Math.min(total * 0.08, 1.6 * 2 ** 30));

/** With `auto`. */
export interface Among extends Pick<EngineSetup, 'failedBackends'> {
  /** Called before a backend is loaded, which may end this process. */
  readonly tries?: (backend: GpuBackend | false) => void;
}

/**
 * llama.cpp with the backend that `gpu` selects; its errors go to `log`. The caller disposes it. Rejects with a {@link
 * LoadFailure} if there is no such backend, no device for it, which may become available later, or no engine for this system.
 */
export async function openLlama(gpu: EngineSetup['gpu'], log?: LlamaLog, among: Among = {}): Promise<Llama> {
  const { failedBackends = [], tries = silent } = among;
  checkServed();
  // During callers' jobs llama.cpp's own lines may quote content: they are not logged.
  const logs = { logLevel: log ? LlamaLogLevel.error : LlamaLogLevel.disabled, ...(log && { logger: log.logger }) };
  // Found by the files of drivers and libraries. A driver's library without a GPU is common, so the next one is tried then.
  const backends =
    gpu === 'auto'
      ? (await getLlamaGpuTypes('supported')).filter(
          (backend) => backend === false || !failedBackends.includes(backend),
        )
      : [gpu];
  let problem = '';
  for (const backend of backends) {
    tries(backend);
    const found = findAddon(backend);
    const opened = found ? await openAddon(found, logs) : 'none';
    if (opened === 'none') problem = `there is no llama.cpp for the backend ${String(backend)} on this machine`;
    else if (opened === 'no device') problem = `${String(backend)} finds no device on this machine`;
    else return opened;
    if (gpu !== 'auto') throw new LoadFailure(problem, opened === 'no device');
  }
  throw new LoadFailure(problem);
}

/** `none`: the addon cannot be loaded. `no device`: of a GPU's; it then computes on the CPU, but without the settings chosen for one. */
export async function openAddon(
  { backend, file, metadata, build, extensions }: AddonFile,
  {
    logLevel = LlamaLogLevel.disabled,
    logger = silent,
    maxThreads,
  }: Pick<LlamaOptions, 'logLevel' | 'logger' | 'maxThreads'> = {},
): Promise<Llama | 'none' | 'no device'> {
  const bindings = loadAddon(file);
  if (bindings === undefined) return 'none';
  let llama: Llama;
  try {
    llama = await (Llama as unknown as Creates)._create({
      bindings,
      bindingPath: file,
      extBackendsPath: extensions,
      buildType: build,
      buildMetadata: metadata,
      logLevel,
      logger,
      maxThreads,
      vramPadding,
      ramPadding,
      numa: false,
      debug: false,
      tempDir: false,
    });
  } catch (error) {
    // It throws where a GPU's backend has no device that it supports.
    if (backend !== false) return 'no device';
    throw error;
  }
  if (backend === false || (await hasDevice(llama))) {
    shareAddon(file);
    return llama;
  }
  await llama.dispose();
  return 'no device';
}

async function hasDevice(llama: Llama): Promise<boolean> {
  return llama.gpu !== false && (await llama.getGpuDeviceNames()).length > 0;
}
