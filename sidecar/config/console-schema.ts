import { integer, section, type SettingSchema } from './kinds.js';

/** The operators' console: `console`. */
export const consoleSchema: SettingSchema = section({
  viewers: integer(
    'Browsers that may show the console (`/console` on the operators’ listener) at once; a further one gets 429. 0: no console.',
    { default: 8, minimum: 0, maximum: 64, unit: 'viewers' },
  ),
  // Below a quarter of a second there is no visible difference; past ten seconds a proxy may close the idle feed.
  intervalMs: integer('Time between two updates of the console. No update is made without viewers.', {
    default: 1000,
    minimum: 250,
    maximum: 10_000,
    unit: 'ms',
  }),
});
