import { bytes, integer, KIB, MIB, milliseconds, section, type SettingSchema } from './kinds.js';

/** The section `usage`: the spool of usage records (docs/usage.md). */
export const usageSchema: SettingSchema = section({
  segmentBytes: bytes('Size at which a segment of the spool is followed by a new one.', {
    default: 16 * MIB,
    minimum: KIB,
  }),
  groupMs: milliseconds(
    'Records that no reply waits for are synced together, at the latest after this long. A reply’s last record is written as soon as the disk is free.',
    { default: 5 },
  ),
  groupRecords: integer('Number of waiting records at which they are written at once.', {
    default: 64,
    minimum: 1,
    maximum: 10_000,
    unit: 'records',
  }),
  maxUnsyncedMs: milliseconds('A record that is not durable after this long makes the spool unhealthy.', {
    default: 2000,
    minimum: 10,
  }),
  minFreeBytes: bytes('Less free disk space than this makes the spool unhealthy.', { default: 64 * MIB }),
  maxBacklogBytes: bytes(
    'A larger spool than this is unhealthy. Segments are deleted once they are no longer needed (docs/usage.md).',
    { default: 4096 * MIB, minimum: 2 * KIB },
  ),
  probeMs: milliseconds(
    'How often the spool is probed; an unhealthy one is healthy again after three successful probes.',
    {
      default: 1000,
      minimum: 10,
    },
  ),
  closeWaitMs: milliseconds(
    'How long a reply’s last bytes wait for its usage record to be durable. Then they are sent anyway, and a line is logged.',
    { default: 10_000 },
  ),
});
