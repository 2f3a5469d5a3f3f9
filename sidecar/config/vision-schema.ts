import { bytes, integer, MIB, text, type SettingSchema } from './kinds.js';
import { CORES, DEVICE } from './replicas-schema.js';

/** `models[].vision`. */
export const visionSchema: SettingSchema = {
  type: 'object',
  description:
    'What reads the images of a chat model’s requests: a process of its own, in which callers’ files are decoded. docs/vision.md. Absent: an image is answered 400.',
  defaultText: 'the model takes no images',
  additionalProperties: false,
  required: ['projector'],
  properties: {
    projector: text('Path of the model’s projector, a GGUF file (`mmproj`), relative to the working directory.', {
      defaultText: 'none: it must be set',
    }),
    maxImages: integer('Images of one request.', { default: 16, minimum: 1, maximum: 1024 }),
    maxPixels: integer('Pixels of one image, by its head. The decoder takes up to 32 bytes for each.', {
      default: 16_777_216,
      minimum: 1,
      maximum: 268_435_456,
    }),
    maxTokensPerImage: {
      type: 'integer',
      description:
        'Tokens of one image, without those of the text that a projector puts around it. A projector that has a choice shrinks larger images to it; of others they are answered 400.',
      minimum: 1,
      maximum: 65_536,
      unit: 'tokens',
      defaultText: 'the projector’s own, and 4,096',
    },
    threads: integer('Compute threads of the encoder. 0: one for each of `cores`, or all cores but one.', {
      default: 0,
      minimum: 0,
      maximum: 1024,
      unit: 'threads',
    }),
    cores: text(
      'Cores that the encoder computes on, as in `0-3,8`: running replies keep their pace while it has others than the engine. Linux only; needs `taskset`.',
      { pattern: CORES, maxLength: 256, defaultText: 'any' },
    ),
    devices: {
      ...DEVICE,
      description:
        'The GPU that the encoder computes on: its index, its UUID, or the UUID of a MIG instance. The backend is the model’s `gpu`.',
      defaultText: 'none: it computes on the CPU',
    },
    cacheBytes: bytes('Embeddings that are kept: an image that was seen lately is not encoded again. 0: none.', {
      default: 256 * MIB,
      maximum: 2 ** 40,
    }),
  },
};
