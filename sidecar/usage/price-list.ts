import type { Rates } from '../domain/money.js';

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
  readonly chat: ReadonlyMap<string, Rates>;
}

/** Which model is asked for. */
export interface PricedModel {
  readonly id: string;
  readonly kind: 'chat' | 'decision';
}

/** Picodollars per decision token: 0.042 USD per million. */
const DECISION_RATE = 42_000n;

const FREE: Rates = { input: 0n, cachedInput: 0n, output: 0n };

/** Rates of a decision model: nothing is generated, and reused input tokens cost the same. */
export function decisionRates(input: bigint): Rates {
  return { input, cachedInput: input, output: 0n };
}

/** The past, current and future prices. Immutable. */
export class PriceList {
  /** Latest first. */
  readonly #versions: readonly PriceVersion[];
  readonly #unlistedChat: Rates | undefined;

  /**
   * `versions`: at least one. `unlistedChat`: the rates of chat models that a version does not name; undefined: that is
   * an error.
   */
  constructor(versions: readonly PriceVersion[], unlistedChat?: Rates) {
    this.#versions = [...versions].sort((a, b) => b.effective - a.effective);
    this.#unlistedChat = unlistedChat;
  }

  /**
   * The tariff of `model` for a request that starts now (epoch ms). Before the first version its prices apply. Throws
   * for a model that {@link unpriced} returns, which a start refuses.
   */
  tariff({ id, kind }: PricedModel, now: number): Tariff {
    const version = this.#versions.find(({ effective }) => effective <= now) ?? this.#versions.at(-1);
    const rates = kind === 'decision' ? version?.decisions : (version?.chat.get(id) ?? this.#unlistedChat);
    if (!version || !rates) throw new Error('a model without a price');
    return { version: version.version, rates };
  }

  /** The first of `models` without a price in the current version or a later one. */
  unpriced(
    models: readonly PricedModel[],
    now: number,
  ): { readonly model: string; readonly version: string } | undefined {
    if (this.#unlistedChat) return undefined;
    const current = this.#versions.findIndex(({ effective }) => effective <= now);
    const counting = current < 0 ? this.#versions : this.#versions.slice(0, current + 1);
    for (const { version, chat } of counting) {
      const model = models.find(({ id, kind }) => kind === 'chat' && !chat.has(id));
      if (model) return { model: model.id, version };
    }
    return undefined;
  }
}

/** The prices without a file: decisions at the published rate, chat free. */
export const BUILT_IN_PRICES = new PriceList(
  [{ version: '2026-10-03.4', effective: 0, decisions: decisionRates(DECISION_RATE), chat: new Map() }],
  FREE,
);
