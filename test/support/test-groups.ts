/** Which test files share a process, and which cannot. */

/** Test files that run in one process: a failing test does not affect the others of its group, a crash does. */
const MOST_OF_A_GROUP = 30;

/** Files below one of these folders share a process, since they share what they test with. */
const SHARING: readonly { readonly name: string; readonly files: RegExp; readonly most: number }[] = [
  {
    // One sidecar on real engines (shared-sidecar.ts).
    name: 'models',
    files:
      /^integration\/(ai|chat|decisions|decisions-isolation|json-mode|openai|sampling|seedling|stream-bytes|tools|typesafe)\./,
    most: 12,
  },
  {
    // The sidecar in their own process, and its prompt hosts (shared-lanes.ts).
    name: 'contract',
    files:
      /^contract\/(admission|billing|bodies|both-contracts|completions|console|fields|fleet|gateway|idempotency|images|keys|left-while-closing|limits|openapi|order|security|traces|vision)\./,
    most: 9,
  },
  {
    // Sidecars as separate processes, and nothing in this process.
    name: 'sidecars',
    files:
      /^(fault\/(balances|cancel|cold|descriptors|drain|engine-hang|engine-jobs|engine-killed|engine-left|odd-files|prompt-host-killed|replica-killed|sidecar-killed|spool-full|spool-killed|spool-removed)|integration\/(access|affinity|call-formats|console|decisions-fairness|keep-alive|keys-command|lazy-models|load|no-content|no-content-access|no-content-compatible|no-content-crash|no-content-usage|operations|otlp|picker-metrics|prompts-fairness|reload|replicas|responses|systemd|usage-delivery))\./,
    most: 5,
  },
  {
    // llama.cpp in their own process, and no other process.
    name: 'llama',
    files:
      /^integration\/(engine\/(families|grammar|masks|reuse|checkpoint-reuse)|engine\/llama\/(bare-vocabulary|checkpoints|decoders)|bench\/models\/(embedded|vocabulary-own|vocabulary-copy))\./,
    most: 12,
  },
];

/** Files that start engines and sidecars as processes; each has its own process too. */
const PROCESSES = /^(contract|integration|fault|regression|e2e)\/|^docs\/commands\./;

/** Unit tests that need their own process, and why. */
export const ALONE: Readonly<Record<string, string>> = {
  'architecture.test.js': 'reads the whole tree, which takes as long as a group',
  'bench/admission/simulate.test.js': 'takes as long as a group',
  'bench/models/random-weights.test.js': 'takes as long as a group',
  'bench/soak/watch.test.js': 'measures the memory of its own process',
  'sidecar/contracts/schemas.test.js': 'must see each schema as its module loads, which happens once a process',
  'sidecar/usage/corruption.test.js': 'takes as long as a group',
  'support/retention-watch.test.js': 'measures the heap of its own process',
};

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
  return [
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
}

/** Distributed one by one, so that long tests of one folder are not all in one group. */
function chunks(name: string, files: readonly string[], most: number): TestGroup[] {
  const count = Math.ceil(files.length / most);
  return Array.from({ length: count }, (_, group) => ({
    name: `${name}-${group + 1}`,
    files: files.filter((_, at) => at % count === group),
  }));
}
