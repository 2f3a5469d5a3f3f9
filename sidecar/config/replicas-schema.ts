import type { SettingSchema } from './kinds.js';

/** Numbers and ranges of cores. */
export const CORES = '^\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*$';

/** Engine processes of one model. */
const MOST_REPLICAS = 64;

/** Of a GPU or of a MIG instance, as `nvidia-smi -L` prints it. */
const UUID = '^(GPU|MIG)-[0-9A-Za-z/-]{1,96}$';

/** One GPU. */
export const DEVICE: SettingSchema = {
  type: ['integer', 'string'],
  minimum: 0,
  maximum: 255,
  pattern: UUID,
  maxLength: 128,
  'x-message': 'must be the index of a GPU, or the UUID of one or of a MIG instance',
};

/** `models[].replicas`. */
export const replicasSchema: SettingSchema = {
  type: ['integer', 'string', 'array'],
  description:
    'Engine processes of this model, behind one queue. A number: on a CPU so many, on a host with GPUs one for each of the first so many devices. `auto`: one for each device on which the model fits, on a CPU one. A list has an object for each: `devices` (an index, the UUID of a GPU or of a MIG instance, or a list of these, over which its layers are split; absent: all that there are), and `seats`, `contextPerSeat`, `threads` and `cores` where they differ from the model’s. 1: one process that sees all devices.',
  default: 1,
  allowedText: `from 1 to ${MOST_REPLICAS}, \`auto\`, or a list`,
  'x-message': `must be a number from 1 to ${MOST_REPLICAS}, auto, or a list of at most ${MOST_REPLICAS} replicas`,
  minimum: 1,
  maximum: MOST_REPLICAS,
  pattern: '^auto$',
  minItems: 1,
  maxItems: MOST_REPLICAS,
  items: {
    type: 'object',
    additionalProperties: false,
    properties: {
      devices: {
        ...DEVICE,
        type: ['integer', 'string', 'array'],
        minItems: 1,
        maxItems: 16,
        items: DEVICE,
        'x-message': 'must be the index of a GPU, the UUID of one or of a MIG instance, or a list of these',
      },
      seats: { type: 'integer', minimum: 1, maximum: 256 },
      contextPerSeat: { type: 'integer', minimum: 64, maximum: 1_048_576 },
      threads: { type: 'integer', minimum: 0, maximum: 1024 },
      cores: { type: 'string', pattern: CORES, maxLength: 256 },
    },
  },
};
