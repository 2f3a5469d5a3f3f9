/** Which test files share a process, and which cannot. */
import { secondsOf } from './test-seconds.js';

/** Test files that run in one process: a failing test does not affect the others of its group, a crash does. */
const MOST_OF_A_GROUP = 90;

/** Files below one of these folders share a process, since they share what they test with. */
const SHARING: readonly { readonly name: string; readonly files: RegExp; readonly most: number }[] = [
  {
    // One sidecar on real engines (shared-sidecar.ts).
    name: 'models',
    files:
      /^integration\/(ai|chat|decisions|decisions-isolation|openai|sampling|seedling|stream-bytes|tools|typesafe)\./,
    most: 12,
  },
  {
    // The sidecar in their own process, and its prompt hosts (shared-lanes.ts).
    name: 'contract',
    files:
      /^(contract\/(admission|agents|billing|bodies|both-contracts|console|console-numbers|embeddings|fields|fleet|fuzz|gateway|http|idempotency|images|keys|left-while-closing|limits|messages|openapi|operators-keys|order|quotas|security|store|store-keys|traces|vision)|fault\/(otlp|replicas-killed)|integration\/external-servers)\./,
    most: 16,
  },
  {
    // Sidecars as separate processes, and nothing in this process.
    name: 'sidecars',
    files:
      /^(fault\/(balances|batches-forgotten|batches-full|batches-killed|cancel|cold|descriptors|drain|embeddings|engine-hang|engine-jobs|engine-killed|engine-left|engine-load|forgotten|gpu-backends|key-change-killed|lock-claims|odd-files|parent-gone|replica-killed|sidecar-killed|spool-full|spool-killed|spool-removed|unread-answers)|integration\/(access|batch-stores|batches|call-formats|cores|decisions-fairness|embeddings|first-run|images|keep-alive|keys-command|lazy-models|load|make-run|no-content|no-content-access|no-content-crash|no-content-secrets|no-content-usage|otlp|otlp-loading|prefill-ahead|prefix-cache|prompts-fairness|quotas|reload|replicas|responses|reuse|sessions|systemd|upgrade|usage-delivery))\./,
    most: 10,
  },
  {
    // llama.cpp in their own process, and no other process.
    name: 'llama',
    files:
      /^integration\/engine\/(decode-faults|families|grammar|kv-types|masks|prefix-cache|reuse|llama\/(bare-vocabulary|batch-decoder|checkpoints|drafts|gaps|paged-states|picker|runs|speculation|split-model)|scheduler\/warm-up)\./,
    most: 12,
  },
  {
    // One PostgreSQL (postgres.ts), of which each test has a database.
    name: 'store',
    files: /^(sidecar\/commands\/(credit|store)|sidecar\/store\/[\w-]+)\./,
    most: 12,
  },
  {
    // Children of their own, and nothing else.
    name: 'children',
    files: /^integration\/sidecar\/(engine-client\/(replace|replica)|prompts\/(host|inline))\./,
    most: 12,
  },
  {
    // Real vocabularies, each loaded once for all of them (prompt-models.ts).
    name: 'prompts',
    files: /^integration\/engine\/prompt\//,
    most: 12,
  },
];

/** Files that start engines and sidecars as processes; each has its own process too. */
const PROCESSES = /^(contract|integration|fault|e2e)\/|^docs\/commands\./;

/** Unit tests that need their own process, and why. */
export const ALONE: Readonly<Record<string, string>> = {
  'architecture.test.js': 'reads the whole tree, which takes as long as a group',
  'bench/admission/simulate.test.js': 'takes as long as a group',
  'sidecar/commands/serve.test.js': 'looks for children and descriptors of its own process',
  'sidecar/contracts/schemas.test.js': 'must see each schema as its module loads, which happens once a process',
  'sidecar/usage/corruption.test.js': 'takes as long as a group',
  'support/retention-watch.test.js': 'measures the heap of its own process',
};

/** Files that only `make test-long` runs, and why. */
export const NIGHTLY: readonly { readonly files: RegExp; readonly why: string }[] = [
  { files: /^bench\/admission\/simulate\./, why: 'of a bench, and long' },
  {
    files: /^contract\/minted-accounts\./,
    why: 'of 24,000 accounts; the tests of limits, quotas, credit and the queue have the bound of each map',
  },
  { files: /^integration\/batch-memory\./, why: 'stores 512 MiB and runs 100,000 lines, which takes minutes' },
];

/** Whether `make test` runs the file, given below dist/test. */
export function isShort(file: string): boolean {
  return !NIGHTLY.some(({ files }) => files.test(file));
}

export interface TestGroup {
  readonly name: string;
  /** Below dist/test. */
  readonly files: readonly string[];
}

/** Each file, given below dist/test, in exactly one group. The groups that take longest come first. */
export function groupsOf(files: readonly string[]): readonly TestGroup[] {
  const sorted = [...files].sort();
  const shares = (file: string): boolean => SHARING.some(({ files: sharing }) => sharing.test(file));
  const alone = (file: string): boolean => !shares(file) && (PROCESSES.test(file) || file in ALONE);
  const unit = sorted.filter((file) => !shares(file) && !alone(file));
  const groups = [
    ...SHARING.flatMap(({ name, files: sharing, most }) =>
      chunks(
        name,
        sorted.filter((file) => sharing.test(file)),
        most,
      ),
    ),
    ...sorted.filter(alone).map((file) => ({ name: file.replace(/\.test\.js$/, ''), files: [file] })),
    ...chunks('unit', unit, MOST_OF_A_GROUP),
  ];
  return groups.sort((a, b) => sum(b.files) - sum(a.files));
}

const sum = (files: readonly string[]): number => files.reduce((seconds, file) => seconds + secondsOf(file), 0);

/** As few groups as hold them all, which take about the same time: each file goes to the shortest, the longest file first. */
function chunks(name: string, files: readonly string[], most: number): TestGroup[] {
  const groups = Array.from({ length: Math.ceil(files.length / most) }, (): string[] => []);
  for (const file of [...files].sort((a, b) => secondsOf(b) - secondsOf(a))) {
    const [shortest] = groups.filter(({ length }) => length < most).sort((a, b) => sum(a) - sum(b));
    shortest?.push(file);
  }
  return groups.map((members, at) => ({ name: `${name}-${at + 1}`, files: members.sort() }));
}
