import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The section `pricing`. */
export const pricingSchema: SettingSchema = section({
  file: text(
    'The price list, relative to the working directory; docs/billing.md describes its format. It must name every chat model. Read at the start.',
    { defaultText: 'none: decisions at 0.042 USD per million tokens, chat free' },
  ),
});

/** The section `credit`. */
export const creditSchema: SettingSchema = section({
  file: text(
    'The credit file, relative to the working directory: grants of each account (docs/billing.md). An account that is not in it has no credit.',
    { defaultText: 'none: no credit is checked' },
  ),
  pollMs: milliseconds('How often the credit file is checked for changes.', { default: 2000, minimum: 100 }),
  snapshotMs: milliseconds('How often the balances are written to disk, if they changed.', {
    default: 10_000,
    minimum: 100,
  }),
  snapshotCloses: integer('The balances are also written after this many requests have ended.', {
    default: 1000,
    minimum: 1,
    maximum: 1_000_000,
    unit: 'requests',
  }),
  onLostBalances: text(
    'What to do at a start if records are missing between `usage/balances.json` in `dataDir` and the oldest record in the spool, so that balances are unknown. `refuse`: fail the start. `begin`: add the remaining records to the sums in the file, if the file is intact. If the file is ahead of the spool, as after a restore of an older copy, continue from the spool’s end, so that nothing is charged twice.',
    { enum: ['refuse', 'begin'], default: 'refuse' },
  ),
});
