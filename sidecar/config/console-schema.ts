import { integer, section, type SettingSchema } from './kinds.js';

/** The operators' console: `console`. */
export const consoleSchema: SettingSchema = section({
  viewers: integer(
    'Browsers that may watch the console (`/console` on the operators’ listener) at once; one more is answered 429. 0: there is no console.',
    { default: 8, minimum: 0, maximum: 64, unit: 'viewers' },
  ),
  // Below a quarter of a second nobody sees a difference; past ten a proxy may take the feed for dead.
  intervalMs: integer('Time between two pictures on the console. None is made while nobody watches.', {
    default: 1000,
    minimum: 250,
    maximum: 10_000,
    unit: 'ms',
  }),
});
