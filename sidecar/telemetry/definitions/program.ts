/** This program. */
import { PREFIX, type GaugeDefinition } from '../instruments.js';

export const BUILD_INFO: GaugeDefinition<'version'> = {
  name: `${PREFIX}build_info`,
  type: 'gauge',
  unit: '1',
  labels: ['version'],
  help: 'Always 1; its label is the version of the sidecar.',
  advice: 'Several versions for long: an upgrade has not reached all hosts.',
};

export const PROGRAM_METRICS = [BUILD_INFO] as const;
