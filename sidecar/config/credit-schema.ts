import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The section `pricing`. */
export const pricingSchema: SettingSchema = section({
  file: text(
    'The price list, from the working directory; its format is in docs/billing.md. It names every chat model. Read at the start.',
    { defaultText: 'none: decisions at 0.042 USD per million tokens, chat free' },
  ),
});

/** The section `credit`. */
export const creditSchema: SettingSchema = section({
  file: text(
    'The credit file, from the working directory: what each account was granted (docs/billing.md). An account that is not in it has none.',
    { defaultText: 'none: no credit is checked' },
  ),
  pollMs: milliseconds('How often the credit file is looked at for changes.', { default: 2000, minimum: 100 }),
  snapshotMs: milliseconds('How often what accounts have spent is written down, if it changed.', {
    default: 10_000,
    minimum: 100,
  }),
  snapshotCloses: integer('The same, counted in requests that ended.', {
    default: 1000,
    minimum: 1,
    maximum: 1_000_000,
    unit: 'requests',
  }),
  onLostBalances: text(
    'What to do at a start when what accounts have spent cannot be known, because records are missing between `usage/balances.json` in `dataDir` and what the spool still holds. `refuse`: stop. `begin`: count from the oldest record that is left, on top of what the file says if it is whole; where the file counts more than the spool holds, as after one was restored from an older copy, from the spool’s end on, so that nothing is charged twice.',
    { enum: ['refuse', 'begin'], default: 'refuse' },
  ),
});
