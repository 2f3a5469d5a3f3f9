/**
 * The addon's side of a vision process: a projector without its model's weights (engine/native/vision.cpp), and what confines
 * the process that parses callers' files (engine/native/sandbox.cpp).
 */
import { openLlama } from './backend.js';
import { computeThreads } from './cores.js';
import { LlamaLog } from './llama-log.js';
import { LoadFailure } from './load-failure.js';
import { checkModelFile } from './model-file.js';
import { visionAddon } from './addon.js';
import { readProjector } from './projector.js';
import type { EncodeTask, LayoutPart, Size, VisionSetup } from '../protocol/vision-messages.js';

/** Projectors whose layout of an image depends on what is before it in the prompt. */
const UNSUPPORTED: readonly string[] = ['hunyuanvl', 'deepseek4v'];

/** The value with which libmtmd uses the projector's own bound of tokens. */
const OWN_BOUND = -1;

export interface Vision {
  /** Embeddings of an image attend to each other. */
  readonly whole: boolean;
  /** Throws where the projector takes no image of this size. */
  layout(size: Size): readonly LayoutPart[];
  /** For each part of the layout with embeddings, these. Rejects with `undecodable` where the file is not what its head says. */
  encode(task: Pick<EncodeTask, 'bytes' | 'size' | 'shrunk'>): Promise<readonly Float32Array[]>;
  /** Denies files and network from now on, and bounds the memory to so many bytes; false: this system cannot. It cannot be undone. */
  confine(bytes: number): { readonly filtered: boolean; readonly bounded: boolean };
}

/** Rejects with a {@link LoadFailure} where the projector cannot be used. */
export async function openVision(setup: VisionSetup): Promise<Vision> {
  const log = new LlamaLog();
  const llama = await openLlama(setup.gpu, log);
  if (setup.gpu !== false && llama.gpu === false)
    throw new LoadFailure('vision.devices is set, and no GPU was found for the encoder', true);
  const { RaVision: Make, raSandbox: sandbox } = visionAddon();
  await checkProjector(setup.projector);
  log.begin();
  try {
    const made = new Make(
      setup.file,
      setup.projector,
      computeThreads(setup),
      setup.maxTokens ?? OWN_BOUND,
      llama.gpu !== false,
    );
    return {
      whole: made.nonCausal,
      layout: ({ width, height }) => made.layout(width, height).map(partOf),
      encode: ({ bytes, size, shrunk }) => made.encode(bytes, size.width, size.height, shrunk.width, shrunk.height),
      confine: sandbox,
    };
  } catch (error) {
    throw await log.failure(error, 'the projector cannot be used');
  } finally {
    log.close();
  }
}

async function checkProjector(file: string): Promise<void> {
  const checked = checkModelFile(file);
  if (checked.kind === 'bad') throw new LoadFailure(`the projector: ${checked.problem}`, checked.mayMend);
  const { type } = await readProjector(file);
  if (type === undefined) throw new LoadFailure('the projector is none: its file names no clip.projector_type');
  if (UNSUPPORTED.includes(type)) throw new LoadFailure(`projectors of type ${type} are not supported`);
}

function partOf(part: Int32Array | { tokens: number; positions: number; columns: number }): LayoutPart {
  if (part instanceof Int32Array) return { kind: 'tokens', tokens: Uint32Array.from(part) };
  const { tokens: count, positions, columns } = part;
  return { kind: 'embeddings', count, positions, columns };
}
