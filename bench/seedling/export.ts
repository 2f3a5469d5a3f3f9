#!/usr/bin/env node
/**
 * Writes the trained weights as a GGUF file: matrices in Q8_0, norms in float32. TRAINED_FOLDER/calibration.json goes into
 * its metadata when it is there.
 *
 *   node dist/bench/seedling/export.js DATA_FOLDER TRAINED_FOLDER FILE
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeGguf, type TensorSource } from '../models/gguf-writer.js';
import type { Metadata } from '../models/gguf-format.js';
import { encodeF32, quantizeQ8 } from '../models/number-formats.js';
import { modelMetadata } from '../models/random-model.js';
import { CALIBRATION_KEY } from '../../engine/prompt/labels.js';
import { vocabularyOf, type Merged } from './vocabulary.js';

/** The output of bench/decisions/calibrate.ts, if any: temperatures by type of question. */
type Calibration = Readonly<Record<string, number>>;

/** What export.py writes. */
interface Weights {
  readonly shape: {
    readonly width: number;
    readonly layers: number;
    readonly heads: number;
    readonly kv_heads: number;
    readonly feed_forward: number;
    readonly rope_base: number;
  };
  readonly tensors: readonly { readonly name: string; readonly dimensions: readonly number[] }[];
}

const CONTEXT = 8192;
const DESCRIPTION = 'a very small chat and decision model, trained from nothing on generated text; see its model card';

function tensorSources({ tensors }: Weights, bytes: Buffer): TensorSource[] {
  const all = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  let at = 0;
  const sources = tensors.map(({ name, dimensions }): TensorSource => {
    const length = dimensions.reduce((product, dimension) => product * dimension, 1);
    const values = all.subarray(at, at + length);
    at += length;
    const matrix = dimensions.length > 1;
    return {
      name,
      type: matrix ? 'Q8_0' : 'F32',
      dimensions,
      data: () => [matrix ? quantizeQ8(values) : encodeF32(values)],
    };
  });
  if (at !== all.length) throw new Error(`weights.bin holds ${all.length} numbers, its list ${at}`);
  return sources;
}

const [data, trained, file] = process.argv.slice(2);
if (data === undefined || trained === undefined || file === undefined)
  throw new Error('usage: export DATA TRAINED FILE');
const weights = JSON.parse(await readFile(join(trained, 'weights.json'), 'utf8')) as Weights;
const { shape } = weights;
const metadata = modelMetadata({
  name: 'seedling',
  description: DESCRIPTION,
  shape: {
    width: shape.width,
    layers: shape.layers,
    heads: shape.heads,
    kvHeads: shape.kv_heads,
    feedForward: shape.feed_forward,
    context: CONTEXT,
    weights: 'Q8_0',
    ropeBase: shape.rope_base,
  },
  vocabulary: vocabularyOf(JSON.parse(await readFile(join(data, 'merges.json'), 'utf8')) as Merged),
});
const fitted = join(trained, 'calibration.json');
const calibration = existsSync(fitted) ? (JSON.parse(await readFile(fitted, 'utf8')) as Calibration) : {};
const calibrated: Metadata = new Map([
  ...metadata,
  ...Object.entries(calibration).map(
    ([type, value]) => [`${CALIBRATION_KEY}.${type}`, { type: 'float32', value }] as const,
  ),
]);
await writeGguf(file, calibrated, tensorSources(weights, await readFile(join(trained, 'weights.bin'))));
