/**
 * The credit file: grants of each account. Grants are only ever added, so that each can be looked up.
 * `{"version":1,"accounts":{"acme":[{"id":"inv-17","usd":"25.00","at":"2026-10-03T00:00:00Z"}]}}`.
 */
import { closed, UTC_TIME } from '../contracts/common-schema.js';
import { repeatedName } from '../contracts/repeated-name.js';
import { compile } from '../contracts/validator.js';
import { FileProblem } from '../lib/checked-file.js';
import { parseUsd } from '../domain/money.js';
import { inParts, type LargeFormat } from './large-format.js';

interface CreditFile {
  readonly version: 1;
  readonly accounts: Readonly<Record<string, readonly Grant[]>>;
}

interface Grant {
  /** The operator's id for it, such as an invoice's number. Unique in the file. */
  readonly id: string;
  /** Decimal text, to the picodollar. Negative: a correction. */
  readonly usd: string;
  /** ISO 8601, UTC. For people who read the file. */
  readonly at?: string;
}

/** The file's name in messages. */
const WHAT = 'credit';

/** Room for a million accounts with a grant each; a longer file is an error. */
const MAX_BYTES = 256 * 1024 * 1024;

const name = { type: 'string', minLength: 1, maxLength: 256 };

const check = compile<CreditFile>(
  closed(['version', 'accounts'], {
    version: { const: 1 },
    accounts: {
      type: 'object',
      maxProperties: 1_000_000,
      propertyNames: name,
      additionalProperties: {
        type: 'array',
        maxItems: 100_000,
        items: closed(['id', 'usd'], {
          id: name,
          usd: { type: 'string', maxLength: 32 },
          at: UTC_TIME,
        }),
      },
    },
  }),
  { nameUnknownFields: true },
);

/** Picodollars granted, by account. */
export type Granted = ReadonlyMap<string, bigint>;

/** Each part has some of the accounts. */
export const CREDIT: LargeFormat<Granted> = {
  what: WHAT,
  maxBytes: MAX_BYTES,
  parse: parseCreditFile,
  *parts(granted) {
    for (const accounts of inParts([...granted])) yield new Map(accounts);
  },
};

/** Checks the text of `file`: picodollars granted, by account. Throws {@link FileProblem}. */
export function parseCreditFile(text: string, file: string): Granted {
  const refuse = (problem: string): never => {
    throw new FileProblem(WHAT, problem, file);
  };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return refuse('is not JSON');
  }
  const checked = check(value);
  if (!checked.ok) return refuse(`${checked.path} ${checked.message}`);
  const repeated = repeatedName(text, value);
  if (repeated !== undefined) return refuse(repeated);
  const ids = new Set<string>();
  const granted = new Map<string, bigint>();
  for (const [account, grants] of Object.entries(checked.value.accounts)) {
    let sum = 0n;
    for (const { id, usd } of grants) {
      if (ids.has(id)) refuse(`two grants have the id ${id}`);
      ids.add(id);
      sum +=
        parseUsd(usd) ?? refuse(`grant ${id}: usd must be dollars as decimal text, with at most 12 decimal places`);
    }
    granted.set(account, sum);
  }
  return granted;
}
