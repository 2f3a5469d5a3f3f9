/** `ra-sidecar prices`: the price file that a fleet has in its store. */
import type { Config } from '../config/config.js';
import { changePrices, readDocument } from '../store/keys.js';
import { parsePrices, readPriceText } from '../usage/prices.js';
import { EXIT, parsed, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';
import { operatorHere, withDatabase } from './store.js';

const SPECS = COMMANDS.prices.commands;

/** Runs `prices` with these arguments. Resolves with the exit code; rejects with one line if the file is invalid or the store refuses. */
export async function prices(
  { store, models }: Pick<Config, 'store' | 'models'>,
  [action, ...rest]: readonly string[],
  { out, err: say }: Output,
): Promise<number> {
  switch (action) {
    case 'import': {
      const [file = ''] = parsed(SPECS.import, rest).operands;
      const text = await readPriceText(file);
      parsePrices(text, file, models, Date.now());
      await withDatabase(store, (database) => changePrices(database, text, operatorHere()));
      say('sidecars use these prices for requests that begin from now on\n');
      return EXIT.done;
    }
    case 'show': {
      parsed(SPECS.show, rest);
      const text = await withDatabase(store, (database) => readDocument(database, 'prices'));
      if (text === undefined) {
        say('ra-sidecar: the store has no prices\n');
        return EXIT.failed;
      }
      out(`${text.trim()}\n`);
      return EXIT.done;
    }
    default:
      throw new UsageError(action === undefined ? 'prices: a command is required' : 'prices: unknown command');
  }
}
