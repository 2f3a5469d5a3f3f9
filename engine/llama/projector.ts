import { readGgufFileInfo } from './package.js';

/** Projectors whose embeddings of an image attend to each other: llama.cpp evaluates all of them in one decode. */
const WHOLE: ReadonlySet<string> = new Set(['gemma3', 'gemma4v', 'gemma4uv']);

/** Patches a side that Gemma 3 makes one embedding of, unless its file says otherwise. */
const GEMMA3_SCALE = 4;

interface Vision {
  readonly projector_type?: unknown;
  readonly image_size?: unknown;
  readonly patch_size?: unknown;
  readonly projector?: { readonly scale_factor?: unknown };
}

/**
 * `type`: `clip.projector_type`, of images where the file has several; undefined if it is no projector. `atOnce`: the most embeddings that
 * one decode must have at once; 0: images may be split; undefined if only the settings bound them. Rejects if the file cannot be read.
 */
export async function readProjector(file: string) {
  const { metadata } = await readGgufFileInfo(file, { sourceType: 'filesystem', logWarnings: false });
  const { clip } = metadata as { readonly clip?: { readonly projector_type?: unknown; readonly vision?: Vision } };
  const found = clip?.vision?.projector_type ?? clip?.projector_type;
  const type = typeof found === 'string' ? found : undefined;
  return { type, atOnce: type === undefined || !WHOLE.has(type) ? 0 : atOnce(type, clip?.vision) };
}

function atOnce(type: string, vision: Vision | undefined): number | undefined {
  const { image_size: image, patch_size: patch, projector } = vision ?? {};
  if (type !== 'gemma3' || typeof image !== 'number' || typeof patch !== 'number' || !(patch > 0)) return undefined;
  const scale = projector?.scale_factor;
  return Math.ceil(image / patch / (typeof scale === 'number' && scale > 0 ? scale : GEMMA3_SCALE)) ** 2;
}
