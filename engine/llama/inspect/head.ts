import { statSync } from 'node:fs';
import type { GgufFileInfo } from 'node-llama-cpp';
import type { HeadFacts, HeadReport } from '../../protocol/inspect-messages.js';
import { partsOf } from '../../protocol/file-key.js';
import { checkModelFile } from '../model-file.js';
import { GgufFileType, readGgufFileInfo } from '../package.js';

/** A file that was looked at. `info`: what node-llama-cpp read of it. */
export type ModelHead =
  | { readonly kind: 'head'; readonly head: HeadFacts; readonly info: GgufFileInfo; readonly tensors: number }
  | Extract<HeadReport, { kind: 'bad' }>;

/** Longer names are truncated: a file may say anything. */
const MAX_NAME = 128;

/** Looks at a GGUF's head. Rejects nothing; loads no native code. */
export async function readModelHead(file: string): Promise<ModelHead> {
  const checked = checkModelFile(file);
  if (checked.kind === 'bad') return { kind: 'bad', problem: checked.problem };
  try {
    const info = await readGgufFileInfo(file, { sourceType: 'filesystem', logWarnings: false });
    return { kind: 'head', head: factsOf(info, bytesOf(file)), info, tensors: checked.tensors };
  } catch {
    // Its own words may quote what the file holds.
    return { kind: 'bad', problem: 'the file is damaged: its head cannot be read' };
  }
}

/** Of all files of a split model. */
function bytesOf(file: string): number {
  return partsOf(file).reduce((sum, part) => sum + statSync(part).size, 0);
}

function factsOf({ metadata, architectureMetadata }: GgufFileInfo, bytes: number): HeadFacts {
  const { name, architecture, file_type: type } = metadata.general;
  const quantisation = type === undefined ? undefined : GgufFileType[type];
  const { context_length: trained } = architectureMetadata;
  return {
    bytes,
    architecture: printable(architecture),
    ...(name !== undefined && { name: printable(name) }),
    ...(quantisation !== undefined && { quantisation: quantisation.replace(/^(MOSTLY|ALL)_/, '') }),
    ...(trained !== undefined && { trainedContext: trained }),
  };
}

/** Of one line: it goes to a terminal. */
function printable(text: string): string {
  return text.replace(/\p{C}+/gu, ' ').slice(0, MAX_NAME);
}
