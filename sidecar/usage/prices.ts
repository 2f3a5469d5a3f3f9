/** The prices in force: built in, or from the price file. */
import { closed, exactly, UTC_TIME } from '../contracts/common-schema.js';
import { compile, parseFile, type ValueOf } from '../contracts/validator.js';
import { parseRate, type Rates } from '../domain/money.js';
import { SERVICE_TIERS, type ServiceTier } from '../domain/service-class.js';
import { FileProblem, readText, UnreadFile } from '../lib/checked-file.js';
import { exactTime } from '../lib/clock.js';

/** The prices for one request from its start to its end. */
export interface Tariff {
  /** Version of the price list, for example `2026-10-03.4`. */
  readonly version: string;
  readonly rates: Rates;
}

/** Prices that are in force from one moment until the next version's. */
export interface PriceVersion {
  readonly version: string;
  /** Epoch ms. */
  readonly effective: number;
  /** All decision models. A question's tokens cost the same whether their state was reused or not. */
  readonly decisions: Rates;
  /** Chat models by id. */
  readonly chat: ReadonlyMap<string, ChatRates>;
  /** The same for lines of batches. A model that is not in it costs as much as in any other request. Absent: none is. */
  readonly batch?: ReadonlyMap<string, Rates>;
  /** Embedding models and rerankers by id. Absent: none. */
  readonly inputs?: ReadonlyMap<string, Rates>;
}

/** The rates of a chat model, and those of the tiers in which it is sold. */
export interface ChatRates extends Rates {
  readonly tiers?: Readonly<Partial<Record<ServiceTier, Rates>>>;
}

export interface PricedModel {
  readonly id: string;
  readonly kind: 'chat' | 'decision' | 'embedding' | 'rerank';
  /** Absent: the default one. */
  readonly tier?: ServiceTier;
}

/** Picodollars per decision token: 0.042 USD per million. */
const DECISION_RATE = 42_000n;

const FREE: Rates = { input: 0n, cachedInput: 0n, output: 0n };

/** Follows the version in records of requests that were priced at the rates of batches. No version can contain it. */
const BATCH_SUFFIX = '/batch';

export function isOfBatches(version: string): boolean {
  return version.endsWith(BATCH_SUFFIX);
}

/** Rates of a model that generates nothing, and whose reused input tokens cost the same. */
export function inputRates(input: bigint): Rates {
  return { input, cachedInput: input, output: 0n };
}

/** The past, current and future prices. */
export class PriceList {
  /** Latest first. */
  #versions: readonly PriceVersion[];
  #unlisted: Rates | undefined;

  /** `versions`: at least one. `unlisted`: the rates of models that a version does not name; undefined if such a model is an error. */
  constructor(versions: readonly PriceVersion[], unlisted?: Rates) {
    this.#versions = [...versions].sort((a, b) => b.effective - a.effective);
    this.#unlisted = unlisted;
  }

  /** Takes on the prices of another list, for requests that start from now on. */
  take(other: PriceList): void {
    this.#versions = other.#versions;
    this.#unlisted = other.#unlisted;
  }

  /**
   * The tariff of `model` for a request that starts now (epoch ms). Before the first version its prices apply. Throws
   * for a model that {@link unpriced} returns, which a start refuses, and for a tier without a price. `isBatch`: it is a line
   * of a batch.
   */
  tariff(model: PricedModel, now: number, isBatch = false): Tariff {
    const version = this.#inForce(now);
    const reduced = isBatch && model.kind === 'chat' ? version?.batch?.get(model.id) : undefined;
    if (version && reduced) return { version: version.version + BATCH_SUFFIX, rates: reduced };
    const tariff = this.#tariff(model, now);
    if (!tariff) throw new Error('a model without a price');
    return tariff;
  }

  /** The tariff of a tier of a chat model; undefined if it is not sold now. */
  tierTariff(id: string, tier: ServiceTier, now: number): Tariff | undefined {
    return this.#tariff({ id, kind: 'chat', tier }, now);
  }

  #inForce(now: number): PriceVersion | undefined {
    return this.#versions.find(({ effective }) => effective <= now) ?? this.#versions.at(-1);
  }

  #tariff(model: PricedModel, now: number): Tariff | undefined {
    const version = this.#inForce(now);
    const rates = version && this.#rates(version, model);
    return rates && { version: version.version, rates };
  }

  /** The rates of `model` in a version; undefined if the list does not have them. */
  ratesOf(model: PricedModel, version: string): Rates | undefined {
    const isBatch = isOfBatches(version);
    const name = isBatch ? version.slice(0, -BATCH_SUFFIX.length) : version;
    const found = this.#versions.find((each) => each.version === name);
    if (isBatch) return found?.batch?.get(model.id);
    return found && this.#rates(found, model);
  }

  /** A tier has a price of its own or none. */
  #rates(version: PriceVersion, model: PricedModel): Rates | undefined {
    return ratesOf(version, model) ?? (model.tier === undefined ? this.#unlisted : undefined);
  }

  /** The first of `models` without a price in the current version or a later one. */
  unpriced(
    models: readonly PricedModel[],
    now: number,
  ): { readonly model: string; readonly version: string } | undefined {
    if (this.#unlisted) return undefined;
    const current = this.#versions.findIndex(({ effective }) => effective <= now);
    const counting = current < 0 ? this.#versions : this.#versions.slice(0, current + 1);
    for (const version of counting) {
      const model = models.find((each) => !ratesOf(version, each));
      if (model) return { model: model.id, version: version.version };
    }
    return undefined;
  }
}

function ratesOf({ decisions, chat, inputs }: PriceVersion, { id, kind, tier }: PricedModel): Rates | undefined {
  if (kind === 'decision') return decisions;
  if (tier !== undefined) return chat.get(id)?.tiers?.[tier];
  return (kind === 'chat' ? chat : inputs)?.get(id);
}

/** The prices without a file: decisions at the published rate, all else free. */
export const BUILT_IN_PRICES = new PriceList(
  [{ version: '2026-10-03.4', effective: 0, decisions: inputRates(DECISION_RATE), chat: new Map() }],
  FREE,
);

/** Text, so that no JSON parser converts it to a floating-point number. */
const rate = { type: 'string', maxLength: 32 } as const;
const rates = { input: rate, cachedInput: rate, output: rate };
const tierRates = exactly(rates);
const perTier = { flex: tierRates, priority: tierRates } as const satisfies Record<ServiceTier, object>;

/** The price list as a file. */
export const PRICE_SCHEMA = exactly({
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
          ...rates,
          batch: tierRates,
          tiers: closed([], perTier),
        }),
      },
      inputs: { type: 'object', maxProperties: 1000, additionalProperties: rate },
    }),
  },
});

type PriceFile = ValueOf<typeof PRICE_SCHEMA>;
type StoredPrices = PriceFile['prices'][number];
type StoredChatRates = StoredPrices['chat'][string];
type StoredRates = ValueOf<typeof tierRates>;

const check = compile<PriceFile>(PRICE_SCHEMA, { written: 'prices', nameUnknownFields: true });

/** Reads and checks the file: it must price `models` in the version in force now (epoch ms) and later. Throws {@link FileProblem}. */
export async function readPriceFile(file: string, models: readonly PricedModel[], now: number): Promise<PriceList> {
  return parsePrices(await readPriceText(file), file, models, now);
}

/** The file's text, whatever it is. Throws {@link FileProblem}. */
export async function readPriceText(file: string): Promise<string> {
  const text = await readText('pricing', file, Infinity);
  if (text === undefined) throw new UnreadFile('pricing', 'ENOENT', file);
  return text;
}

/** Checks the text of a price file in the same way. */
export function parsePrices(text: string, file: string, models: readonly PricedModel[], now: number): PriceList {
  const refuse = (problem: string): never => {
    throw new FileProblem('pricing', problem, file);
  };
  const versions = parseFile(text, check, refuse).prices.map((prices, i) =>
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
  return missing ? refuse(`version ${missing.version} has no price for the model ${missing.model}`) : list;
}

function parsed(stored: StoredPrices, refuse: (where: string, what: string) => never): PriceVersion {
  const rateAt = (where: string, text: string): bigint =>
    parseRate(text) ??
    refuse(where, 'must be USD per million tokens as decimal text, at least 0, with at most 6 decimal places');
  const effective = exactTime(stored.effective);
  if (Number.isNaN(effective)) refuse('effective', 'is a time that does not exist');
  const ratesAt = (where: string, found: StoredRates): Rates => {
    const of = (name: keyof StoredRates): bigint => rateAt(`${where}.${name}`, found[name]);
    return { input: of('input'), cachedInput: of('cachedInput'), output: of('output') };
  };
  const chat = Object.entries(stored.chat);
  const tiersOf = (model: string, { tiers }: StoredChatRates): NonNullable<ChatRates['tiers']> =>
    Object.fromEntries(
      SERVICE_TIERS.flatMap((tier) => {
        const of = tiers?.[tier];
        return of ? [[tier, ratesAt(`chat.${model}.tiers.${tier}`, of)] as const] : [];
      }),
    );
  return {
    version: stored.version,
    effective,
    decisions: inputRates(rateAt('decisions', stored.decisions)),
    chat: new Map(
      chat.map(([model, found]) => [
        model,
        { ...ratesAt(`chat.${model}`, found), ...(found.tiers && { tiers: tiersOf(model, found) }) },
      ]),
    ),
    batch: new Map(
      chat.flatMap(([model, { batch }]) => (batch ? [[model, ratesAt(`chat.${model}.batch`, batch)] as const] : [])),
    ),
    inputs: new Map(
      Object.entries(stored.inputs ?? {}).map(([model, text]) => [model, inputRates(rateAt(`inputs.${model}`, text))]),
    ),
  };
}
