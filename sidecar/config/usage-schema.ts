import { bytes, integer, KIB, MIB, milliseconds, section, type SettingSchema } from './kinds.js';

/** The section `usage`: the spool of usage records (docs/usage.md). */
export const usageSchema: SettingSchema = section({
  segmentBytes: bytes('A segment of the spool that has grown to this is followed by a new one.', {
    default: 16 * MIB,
    minimum: KIB,
  }),
  groupMs: milliseconds(
    'Records that nothing waits for are made durable together, at the latest after this long. A reply’s last record is written as soon as the disk is free.',
    { default: 5 },
  ),
  groupRecords: integer('As soon as this many records wait they are written.', {
    default: 64,
    minimum: 1,
    maximum: 10_000,
    unit: 'records',
  }),
  maxUnsyncedMs: milliseconds('A record that is not durable after this long makes the spool unhealthy.', {
    default: 2000,
    minimum: 10,
  }),
  minFreeBytes: bytes('Less than this free on the disk makes the spool unhealthy.', { default: 64 * MIB }),
  maxBacklogBytes: bytes(
    'More than this in the spool makes it unhealthy. Segments are deleted once nothing needs them any more (docs/usage.md).',
    { default: 4096 * MIB, minimum: 2 * KIB },
  ),
  probeMs: milliseconds('How often the spool is looked after; an unhealthy one is healthy after three good probes.', {
    default: 1000,
    minimum: 10,
  }),
  closeWaitMs: milliseconds(
    'How long a reply’s last bytes wait for its usage to be durable. Then they go out all the same, and the log says so.',
    { default: 10_000 },
  ),
});
