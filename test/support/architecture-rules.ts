/**
 * Which file may import which, as shared/house.md lays it down, as rules for dependency-cruiser. Types count.
 *
 * A room sees itself, what is named in `sees`, and nothing else of ours. A source file that is in no room, or in two,
 * fails the architecture test: whoever adds one says here where it stands.
 */
import type { IFlattenedRuleSet, IForbiddenRuleType } from 'dependency-cruiser';

export interface Room {
  readonly name: string;
  /** Regular expression over paths from the repository's root. */
  readonly path: string;
  /** Names of other rooms. */
  readonly sees: readonly string[];
}

const file = (folder: string, names: string): string => `^${folder}/(${names})\\.ts$`;
const folder = (path: string): string => `^${path}/`;

const GROUND = ['errors', 'clock', 'ledger', 'money', 'service-class', 'collections'];
const FIRST = [...GROUND, 'contracts', 'telemetry', 'config', 'files'];
const SECOND = ['access', 'admission', 'usage', 'prompts', 'engine-client', 'http'];
const HANDLERS = [...FIRST, ...SECOND];

const ENGINE_PURE = [
  'engine/protocol',
  'engine/prefix-hash',
  'engine/file',
  'engine/task',
  'engine/prompt',
  'engine/output',
  'engine/grammar',
];
const ENGINE_RUNTIME = [...ENGINE_PURE, 'engine/runtime'];
const ENGINE_JOBS = [...ENGINE_RUNTIME, 'engine/jobs'];

export const rooms: readonly Room[] = [
  { name: 'errors', path: file('sidecar', 'errors|error-catalogue'), sees: [] },
  { name: 'clock', path: file('sidecar', 'clock|backoff|within|signal'), sees: [] },
  { name: 'ledger', path: file('sidecar', 'ledger'), sees: [] },
  { name: 'money', path: file('sidecar', 'money'), sees: [] },
  { name: 'service-class', path: file('sidecar', 'service-class'), sees: [] },
  { name: 'collections', path: file('sidecar', 'heap|table'), sees: [] },
  { name: 'contracts', path: folder('sidecar/contracts'), sees: GROUND },
  { name: 'telemetry', path: folder('sidecar/telemetry'), sees: [...GROUND, 'contracts'] },
  {
    name: 'config',
    path: file('sidecar', 'config|config/[a-z-]+'),
    sees: [...GROUND, 'contracts', 'telemetry', 'files'],
  },
  { name: 'files', path: folder('sidecar/lib'), sees: GROUND },
  { name: 'linked-child', path: file('sidecar', 'linked-child'), sees: ['engine/link'] },
  { name: 'reference', path: folder('sidecar/api/openapi'), sees: [...GROUND, 'contracts', 'telemetry'] },
  { name: 'access', path: folder('sidecar/access'), sees: FIRST },
  { name: 'admission', path: folder('sidecar/admission'), sees: FIRST },
  { name: 'usage', path: folder('sidecar/usage'), sees: FIRST },
  {
    name: 'prompts',
    path: folder('sidecar/prompts'),
    sees: [
      ...FIRST,
      'linked-child',
      'engine/link',
      'engine/scavenges',
      'engine/parent-watch',
      'engine/protocol',
      'engine/prompt',
      'engine/grammar',
    ],
  },
  {
    name: 'engine-client',
    path: folder('sidecar/engine-client'),
    sees: [...FIRST, 'linked-child', 'engine/link', 'engine/protocol', 'engine/prefix-hash'],
  },
  { name: 'http', path: folder('sidecar/http'), sees: FIRST },
  { name: 'handlers', path: folder('sidecar/api'), sees: HANDLERS },
  { name: 'console', path: folder('sidecar/console'), sees: [...HANDLERS, 'handlers'] },
  {
    name: 'app',
    path: file(
      'sidecar',
      'app|billing|delivering|descriptors|exporting|hosting|identities|in-flight|listening|operators|readiness|routes|spooling',
    ),
    sees: [...HANDLERS, 'handlers', 'console', 'reference', 'engine/scavenges'],
  },
  { name: 'commands', path: folder('sidecar/commands'), sees: [...HANDLERS, 'handlers', 'app'] },
  { name: 'cli', path: file('sidecar', 'cli'), sees: [...HANDLERS, 'handlers', 'app', 'commands'] },

  { name: 'engine/link', path: file('engine', 'link'), sees: [] },
  { name: 'engine/scavenges', path: file('engine', 'scavenges'), sees: [] },
  { name: 'engine/parent-watch', path: file('engine', 'parent-watch|parent-watch-thread'), sees: [] },
  { name: 'engine/protocol', path: file('engine', 'protocol|inspect-protocol'), sees: [] },
  { name: 'engine/prefix-hash', path: file('engine', 'prefix-hash'), sees: [] },
  {
    name: 'engine/task',
    path: file('engine', 'decode/decoder|decode/faults|loop/task|loop/plan|loop/held'),
    sees: ['engine/protocol'],
  },
  { name: 'engine/file', path: file('engine/llama', 'gguf-head|model-file|load-failure'), sees: [] },
  {
    name: 'engine/prompt',
    path: folder('engine/prompt'),
    sees: ['engine/protocol', 'engine/file', 'engine/output', 'engine/grammar'],
  },
  { name: 'engine/output', path: folder('engine/output'), sees: ['engine/protocol'] },
  { name: 'engine/grammar', path: folder('engine/grammar'), sees: ['engine/protocol'] },
  { name: 'engine/llama/memory', path: folder('engine/llama/memory'), sees: ['engine/protocol', 'engine/file'] },
  {
    name: 'engine/runtime',
    path: file(
      'engine',
      'runtime|sequences|load/(addon|backend|cores|llama-log|plan|uses)|decode/(batch-decoder|batch-sampler|grammar-hold|grammars|iterator-decoder|label-scores|mask-vocabulary|mask-worker|masks|run)|loop/choice',
    ),
    sees: [...ENGINE_PURE, 'engine/llama/memory'],
  },
  { name: 'engine/jobs', path: file('engine', 'generation|job-check|reply|scoring'), sees: ENGINE_RUNTIME },
  {
    name: 'engine/steps',
    path: file('engine', 'steps|warm-up|loop/(clock|handover|jobs|outbox|pace|results|round)'),
    sees: ENGINE_JOBS,
  },
  {
    name: 'engine/llama/inspect',
    path: folder('engine/llama/inspect'),
    sees: [...ENGINE_RUNTIME, 'engine/llama/memory'],
  },
  {
    name: 'engine/entry',
    path: file('engine', 'main|inspect'),
    sees: [
      'engine/link',
      'engine/scavenges',
      'engine/parent-watch',
      ...ENGINE_JOBS,
      'engine/steps',
      'engine/llama/inspect',
    ],
  },
  { name: 'engine/native', path: folder('engine/native'), sees: [] },
  { name: 'bench/models', path: file('bench/models', 'cli|[a-z-]+'), sees: [] },
  {
    name: 'bench/seedling',
    path: folder('bench/seedling'),
    sees: [...ENGINE_PURE, 'bench/models'],
  },
];

/** Who alone may know a package; tests and benches may know any. */
export const walls: Readonly<Record<string, string>> = {
  'uWebSockets.js': folder('sidecar/http'),
  'node-llama-cpp': folder('engine'),
  '@huggingface/jinja': folder('engine/prompt'),
  ajv: file('sidecar/contracts', 'validator'),
  'jsonc-parser': file('sidecar', 'config'),
  '@nats-io/jetstream': file('sidecar/usage/delivery/nats', 'jetstream'),
  '@nats-io/transport-node': file('sidecar/usage/delivery/nats', 'jetstream'),
  kafkajs: file('sidecar/usage/delivery/kafka', 'producer'),
  piscina: file('sidecar/prompts', 'host|worker'),
  pino: file('sidecar/telemetry', 'logger'),
  'prom-client': file('sidecar/telemetry', 'instruments'),
  '@opentelemetry': folder('sidecar/telemetry/otlp'),
};

const OURS = '^(sidecar|engine|bench|test)/';
const SHIPPED = '^(sidecar|engine)/';

/** A package as dependency-cruiser names it, found or not. */
function packagePath(name: string): string {
  return `(^|/)${name.replaceAll('.', '\\.')}(/|$)`;
}

function floor(room: Room): IForbiddenRuleType {
  const seen = rooms.filter(({ name }) => name === room.name || room.sees.includes(name));
  return {
    name: `floor: ${room.name}`,
    severity: 'error',
    from: { path: room.path },
    to: { path: OURS, pathNot: seen.map(({ path }) => path) },
  };
}

function wall([name, path]: [string, string]): IForbiddenRuleType {
  return {
    name: `wall: ${name}`,
    severity: 'error',
    from: { path: SHIPPED, pathNot: path },
    to: { path: packagePath(name) },
  };
}

export const architectureRules: IFlattenedRuleSet = {
  forbidden: [
    ...rooms.map(floor),
    ...Object.entries(walls).map(wall),
    { name: 'no cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      // Forks are no imports, so this holds while native code stays behind them.
      name: 'no native code in the sidecar',
      severity: 'error',
      from: { path: file('sidecar', 'cli|app') },
      to: { path: packagePath('node-llama-cpp'), reachable: true },
    },
    {
      // Its SDK is some two hundred files, and few have a collector.
      name: 'OpenTelemetry is loaded when it is asked for',
      severity: 'error',
      from: { path: '^sidecar/', pathNot: folder('sidecar/telemetry/otlp') },
      to: {
        path: folder('sidecar/telemetry/otlp'),
        pathNot: file('sidecar/telemetry/otlp', 'headers'),
        dynamic: false,
      },
    },
    {
      name: 'nothing imports tests',
      severity: 'error',
      from: { path: '^(sidecar|engine)/' },
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
