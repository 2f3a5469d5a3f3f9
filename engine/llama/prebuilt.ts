/**
 * Opens node-llama-cpp's prebuilt addon for CPUs without the trial that its `getLlama` makes first: on Linux that loads the
 * addon in a process of its own, which takes half a second of processor time at each start. The processes that load it here are
 * children that the sidecar restarts, so an addon that ends its process ends no more than the trial would.
 */
import type { LlamaOptions } from 'node-llama-cpp';
import { Llama, LlamaLogLevel } from './package.js';
import { findPrebuilt, loadPrebuilt } from './prebuilt-file.js';

/** What `getLlama` passes to it. Not public, so it is used only with the version whose source was read. */
interface Creates {
  readonly _create?: (parts: {
    readonly bindings: unknown;
    readonly bindingPath: string;
    readonly buildType: 'prebuilt';
    readonly buildMetadata: unknown;
    readonly logLevel: LlamaLogLevel;
    readonly logger: NonNullable<LlamaOptions['logger']>;
    readonly maxThreads: number | undefined;
    readonly vramPadding: 0;
    readonly ramPadding: (total: number) => number;
    readonly numa: false;
    readonly debug: false;
    readonly tempDir: false;
  }) => Promise<Llama>;
}

const silent = (): void => undefined;

/** Bytes of memory that `getLlama` leaves free where it computes what fits; its own default on Linux. */
const ramPadding = (total: number): number => Math.floor(Math.min(total / 4, 1 << 30));

/**
 * Undefined if the version is another one, if `getLlama` would prefer an addon that was built or downloaded, or if
 * there is no prebuilt one for this machine or it cannot be loaded: the caller then uses `getLlama`, which reports why.
 */
export async function openPrebuilt({
  logLevel = LlamaLogLevel.disabled,
  logger = silent,
  maxThreads,
}: Pick<LlamaOptions, 'logLevel' | 'logger' | 'maxThreads'>): Promise<Llama | undefined> {
  const { _create: create } = Llama as unknown as Creates;
  const found = findPrebuilt();
  if (create === undefined || found === undefined) return undefined;
  const bindings = loadPrebuilt(found.file);
  if (bindings === undefined) return undefined;
  return await create.call(Llama, {
    bindings,
    bindingPath: found.file,
    buildType: 'prebuilt',
    buildMetadata: found.metadata,
    logLevel,
    logger,
    maxThreads,
    vramPadding: 0,
    ramPadding,
    numa: false,
    debug: false,
    tempDir: false,
  });
}
