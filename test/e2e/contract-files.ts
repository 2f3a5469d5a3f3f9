/** Which tests of the contract run against llama-servers (llama-server-contract.e2e.ts), and which do not and why. */

/** Test files, with the titles of the tests in each that differ by design (docs/engines.md says why). */
export const RUN: Readonly<Record<string, readonly string[]>> = {
  'contract/fields': [],
  'contract/gateway': [],
  'contract/keys': [],
  'contract/left-while-closing': [],
  'contract/openapi': [],
  'contract/security': [],
  'contract/too-many-values': [],
  'integration/ai': [],
  'integration/chat': [],
  'integration/decisions': [],
  'integration/openai': [],
  'integration/sampling': [],
  'integration/seedling': [],
  'integration/stream-bytes': [],
  'integration/tools': [],
  'integration/typesafe': [],
};

/** Files of test/contract that need an engine that does what a test's script says, such as to hold a reply until its caller leaves, or to fail. */
export const SCRIPTED = [
  'admission',
  'billing',
  'bodies',
  'both-contracts',
  'console',
  'console-numbers',
  'embeddings',
  'errors',
  'fleet',
  'idempotency',
  'images',
  'limits',
  'operators-keys',
  'order',
  'quotas',
  'store',
  'store-keys',
  'traces',
  'vision',
];

/** Files of test/contract that start sidecars of their own, on our own engine, and ask no model. */
export const NO_MODEL = ['agents', 'fuzz', 'http', 'messages', 'minted-accounts'];
