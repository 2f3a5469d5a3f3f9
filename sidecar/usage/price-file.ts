/** The price list as a file: `{"version":1,"prices":[{"version","effective","decisions","chat":{<model>:{…}}}]}`. */
import { closed, UTC_TIME } from '../contracts/common-schema.js';
import { repeatedName } from '../contracts/repeated-name.js';
import { compile } from '../contracts/validator.js';
import { exactTime } from '../lib/clock.js';
import { NotRegularFile, readRegular } from '../lib/checked-file.js';
import { parseRate, type Rates } from '../domain/money.js';
import { decisionRates, PriceList, type PricedModel, type PriceVersion } from './price-list.js';

/** The file is invalid. The message is one line with the file and the problem. */
export class PriceFileError extends Error {
  override readonly name = 'PriceFileError';
}

interface StoredRates {
  readonly input: string;
  readonly cachedInput: string;
  readonly output: string;
}

interface StoredPrices {
  readonly version: string;
  readonly effective: string;
  readonly decisions: string;
  readonly chat: Readonly<Record<string, StoredRates>>;
}

interface PriceFile {
  readonly version: 1;
  readonly prices: readonly StoredPrices[];
}

/** Text, so that no JSON parser converts it to a floating-point number. */
const rate = { type: 'string', maxLength: 32 };

const check = compile<PriceFile>(
  closed(['version', 'prices'], {
    version: { const: 1 },
    prices: {
      type: 'array',
      minItems: 1,
      maxItems: 1000,
      items: closed(['version', 'effective', 'decisions', 'chat'], {
        version: { type: 'string', maxLength: 64, pattern: '^[0-9A-Za-z][0-9A-Za-z._-]*$' },
        effective: UTC_TIME,
        decisions: rate,
        chat: {
          type: 'object',
          maxProperties: 1000,
          additionalProperties: closed(['input', 'cachedInput', 'output'], {
            input: rate,
            cachedInput: rate,
            output: rate,
          }),
        },
      }),
    },
  }),
  { nameUnknownFields: true },
);

/**
 * Reads and checks the file, which must price each of `models` in the version in force now (epoch ms) and in all later
 * ones. Throws {@link PriceFileError}.
 */
export async function readPriceFile(file: string, models: readonly PricedModel[], now: number): Promise<PriceList> {
  const refuse = (problem: string): never => {
    throw new PriceFileError(`pricing: ${problem} (file ${file})`);
  };
  let text: string;
  let value: unknown;
  try {
    text = await readRegular(file);
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof NotRegularFile) return refuse(error.message);
    const { code } = error as NodeJS.ErrnoException;
    return refuse(code === undefined ? 'is not JSON' : `cannot be read: ${code}`);
  }
  const checked = check(value);
  if (!checked.ok) return refuse(`${checked.path} ${checked.message}`);
  const repeated = repeatedName(text, value);
  if (repeated !== undefined) return refuse(repeated);
  const versions = checked.value.prices.map((prices, i) =>
    parsed(prices, (where, what) => refuse(`prices[${i}].${where} ${what}`)),
  );
  for (const field of ['version', 'effective'] as const) {
    if (new Set(versions.map((version) => version[field])).size < versions.length) {
      return refuse(`two of prices have one ${field}`);
    }
  }
  if (versions.every(({ effective }) => effective > now)) return refuse('no version is in force yet');
  const list = new PriceList(versions);
  const missing = list.unpriced(models, now);
  return missing ? refuse(`version ${missing.version} has no price for the chat model ${missing.model}`) : list;
}

function parsed(stored: StoredPrices, refuse: (where: string, what: string) => never): PriceVersion {
  const rateAt = (where: string, text: string): bigint =>
    parseRate(text) ??
    refuse(where, 'must be USD per million tokens as decimal text, at least 0, with at most 6 decimal places');
  const effective = exactTime(stored.effective);
  if (Number.isNaN(effective)) refuse('effective', 'is a time that does not exist');
  const chat = Object.entries(stored.chat).map(([model, rates]): [string, Rates] => {
    const of = (name: keyof StoredRates): bigint => rateAt(`chat.${model}.${name}`, rates[name]);
    return [model, { input: of('input'), cachedInput: of('cachedInput'), output: of('output') }];
  });
  return {
    version: stored.version,
    effective,
    decisions: decisionRates(rateAt('decisions', stored.decisions)),
    chat: new Map(chat),
  };
}
