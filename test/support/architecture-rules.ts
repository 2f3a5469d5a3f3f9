/**
 * Which folder may import which, and which folder alone may import a package, as rules for dependency-cruiser. Type
 * imports count. docs/architecture.md has the same table with the content of each folder. A folder may import itself
 * and the folders in `sees`. A source file in no module, or in two, fails the architecture test.
 */
import type { IFlattenedRuleSet, IForbiddenRuleType } from 'dependency-cruiser';

export interface Module {
  /** A folder from the repository’s root, or one of the few files above all folders. */
  readonly name: string;
  /** Names of the other modules that it may import. */
  readonly sees: readonly string[];
}

const TYPES = ['sidecar/domain', 'sidecar/lib'];
const LOWEST = [...TYPES, 'sidecar/contracts', 'sidecar/telemetry', 'sidecar/config'];
const MIDDLE = [
  ...LOWEST,
  'sidecar/http',
  'sidecar/access',
  'sidecar/admission',
  'sidecar/prompts',
  'sidecar/engine-client',
  'sidecar/vision',
  'sidecar/usage',
];
const UPPER = [...MIDDLE, 'sidecar/batch', 'sidecar/api'];
const PURE = ['engine/protocol', 'engine/output', 'engine/grammar'];

/** All modules, lowest layer first: none imports one that follows it in this list. */
export const modules: readonly Module[] = [
  { name: 'engine/native', sees: [] },
  { name: 'engine/protocol', sees: [] },
  { name: 'engine/output', sees: ['engine/protocol'] },
  { name: 'engine/grammar', sees: ['engine/protocol'] },
  { name: 'engine/prompt', sees: PURE },
  { name: 'engine/scheduler', sees: PURE },
  { name: 'engine/llama', sees: [...PURE, 'engine/prompt', 'engine/scheduler'] },
  { name: 'engine/remote', sees: [...PURE, 'engine/prompt', 'engine/scheduler', 'engine/llama'] },
  { name: 'engine/main.ts', sees: ['engine/protocol', 'engine/scheduler', 'engine/llama'] },
  { name: 'engine/inspect.ts', sees: ['engine/protocol', 'engine/scheduler', 'engine/llama', 'engine/remote'] },
  { name: 'engine/vision.ts', sees: ['engine/protocol', 'engine/llama'] },

  { name: 'sidecar/domain', sees: [] },
  { name: 'sidecar/lib', sees: ['engine/protocol'] },
  { name: 'sidecar/contracts', sees: TYPES },
  { name: 'sidecar/telemetry', sees: [...TYPES, 'sidecar/contracts'] },
  { name: 'sidecar/config', sees: [...TYPES, 'sidecar/contracts', 'sidecar/telemetry'] },
  { name: 'sidecar/http', sees: LOWEST },
  { name: 'sidecar/access', sees: LOWEST },
  { name: 'sidecar/admission', sees: LOWEST },
  { name: 'sidecar/prompts', sees: [...LOWEST, 'engine/protocol', 'engine/prompt', 'engine/llama'] },
  { name: 'sidecar/engine-client', sees: [...LOWEST, 'engine/protocol'] },
  { name: 'sidecar/vision', sees: [...LOWEST, 'engine/protocol'] },
  { name: 'sidecar/usage', sees: LOWEST },
  { name: 'sidecar/batch', sees: [...LOWEST, 'sidecar/access', 'sidecar/usage'] },
  { name: 'sidecar/store', sees: [...LOWEST, 'sidecar/access', 'sidecar/usage'] },
  { name: 'sidecar/api', sees: [...MIDDLE, 'sidecar/batch'] },
  { name: 'sidecar/console', sees: UPPER },
  { name: 'sidecar/app', sees: [...UPPER, 'sidecar/console', 'sidecar/store', 'engine/protocol'] },
  { name: 'sidecar/commands', sees: [...UPPER, 'sidecar/app', 'sidecar/store'] },
  { name: 'sidecar/cli.ts', sees: [...UPPER, 'sidecar/app', 'sidecar/commands'] },
  { name: 'sidecar/build', sees: UPPER },
];

/** Which folder or file alone may import a package. Tests and benches may import any. */
export const vendors: Readonly<Record<string, readonly string[]>> = {
  'uWebSockets.js': ['sidecar/http'],
  'uWebSockets.js-20.51': ['sidecar/http'],
  '@fastify/busboy': ['sidecar/http/multipart.ts'],
  'node-llama-cpp': ['engine/llama'],
  '@huggingface/jinja': ['engine/prompt'],
  ajv: ['sidecar/contracts/schema-code.ts'],
  'jsonc-parser': ['sidecar/config/config.ts'],
  '@nats-io/jetstream': ['sidecar/usage/delivery/jetstream.ts'],
  '@nats-io/transport-node': ['sidecar/usage/delivery/jetstream.ts'],
  piscina: ['sidecar/prompts/host.ts'],
  pg: ['sidecar/store'],
  pino: ['sidecar/telemetry/logger.ts'],
  'prom-client': ['sidecar/telemetry/instruments.ts'],
  '@opentelemetry': ['sidecar/telemetry/otlp'],
};

/** A regular expression for a folder with everything below it, or for one file. */
export function pathOf(name: string): string {
  const path = `^${name.replaceAll('.', '\\.')}`;
  return name.endsWith('.ts') ? `${path}$` : `${path}/`;
}

const OURS = '^(sidecar|engine|bench|test)/';
const SHIPPED = '^(sidecar|engine)/';

/** A package as dependency-cruiser names it, found or not. */
function packagePath(name: string): string {
  return `(^|/)${name.replaceAll('.', '\\.')}(/|$)`;
}

function engineClientFile(name: string): string {
  return pathOf(`sidecar/engine-client/${name}.ts`);
}

function layerRule({ name, sees }: Module): IForbiddenRuleType {
  return {
    name: `layer: ${name}`,
    severity: 'error',
    from: { path: pathOf(name) },
    to: { path: OURS, pathNot: [name, ...sees].map(pathOf) },
  };
}

function vendorRule([name, importers]: [string, readonly string[]]): IForbiddenRuleType {
  return {
    name: `vendor: ${name}`,
    severity: 'error',
    from: { path: SHIPPED, pathNot: importers.map(pathOf) },
    to: { path: packagePath(name) },
  };
}

export const architectureRules: IFlattenedRuleSet = {
  forbidden: [
    ...modules.map(layerRule),
    ...Object.entries(vendors).map(vendorRule),
    { name: 'no cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'of engine/llama the sidecar imports only the vocabulary',
      severity: 'error',
      from: { path: '^sidecar/' },
      to: { path: pathOf('engine/llama'), pathNot: pathOf('engine/llama/vocabulary.ts') },
    },
    {
      // So that replicas or an external server can replace one process. The bench command drives a process itself.
      name: 'an engine is used through its port',
      severity: 'error',
      from: {
        path: '^sidecar/',
        pathNot: ['sidecar/engine-client', 'sidecar/app', 'sidecar/commands/bench.ts'].map(pathOf),
      },
      to: {
        path: ['replicated-engine', 'replica', 'child', 'mux', 'wire'].map(engineClientFile),
      },
    },
    {
      // A fork is no import, so this is true as long as native code is loaded in child processes only.
      name: 'no native code in the sidecar',
      severity: 'error',
      from: { path: ['sidecar/cli.ts', 'sidecar/app/app.ts'].map(pathOf) },
      to: { path: packagePath('node-llama-cpp'), reachable: true },
    },
    {
      // To import the package takes longer than all else of an engine's start. `engine/llama/package.ts` has what most need, which
      // the build puts in the package's place.
      name: 'node-llama-cpp is loaded when it is needed',
      severity: 'error',
      from: { path: SHIPPED, pathNot: pathOf('engine/llama/package.ts') },
      to: { path: packagePath('node-llama-cpp'), dynamic: false, dependencyTypesNot: ['type-only'] },
    },
    {
      // OpenTelemetry's SDK has some two hundred files, and few hosts have a collector.
      name: 'OpenTelemetry is loaded when it is configured',
      severity: 'error',
      from: { path: '^sidecar/', pathNot: pathOf('sidecar/telemetry/otlp') },
      to: {
        path: pathOf('sidecar/telemetry/otlp'),
        dynamic: false,
      },
    },
    {
      // PostgreSQL's client, for the few sidecars that share a store.
      name: 'the store is loaded when it is configured',
      severity: 'error',
      from: {
        path: '^sidecar/',
        pathNot: ['sidecar/store', ...['store', 'credit', 'prices'].map((name) => `sidecar/commands/${name}.ts`)].map(
          pathOf,
        ),
      },
      to: { path: pathOf('sidecar/store'), dynamic: false, dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'shipped code imports no test and no bench',
      severity: 'error',
      from: { path: SHIPPED },
      to: { path: '^(test|bench)/' },
    },
    {
      name: 'shipped code needs no development package',
      severity: 'error',
      from: { path: SHIPPED },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'] },
    },
  ],
};
