/** What a reload does in which order, and what it leaves when it fails on the way. */
import t from 'tap';
import { reloader, type ReloadParts } from '../../../sidecar/app/weight-reload.js';
import type { Reload } from '../../../sidecar/api/operators.js';
import type { Changes, EngineState, Replaced } from '../../../sidecar/engine-client/engine.js';
import type { ReplicatedEngine } from '../../../sidecar/engine-client/replicated-engine.js';
import type { FirstStart } from '../../../sidecar/prompts/client.js';
import type { PromptModel } from '../../../sidecar/prompts/messages.js';
import { RecordingLog } from '../../support/in-process.js';

const NO_MEMORY: Replaced = { kind: 'kept', why: 'no memory', lacksMemory: true };
const BAD: Replaced = { kind: 'kept', why: 'no model', lacksMemory: false };

/** Files by path: the place on the disk and the content. */
const FILES: Record<string, { readonly place: string; readonly version: string }> = {
  '/old': { place: '1:1:1', version: 'old' },
  '/new': { place: '1:2:1', version: 'new' },
  '/newer': { place: '1:3:1', version: 'newer' },
};

class FakeEngine {
  readonly setups: { file: string; weights?: { key: string; version: string }; remote?: object }[];
  readonly replicas: { state: EngineState }[];
  /** How the next replacements end, in order; past them each succeeds. */
  readonly outcomes: Replaced[] = [];
  readonly calls: string[];

  constructor(count: number, calls: string[]) {
    this.calls = calls;
    this.setups = Array.from({ length: count }, () => ({
      file: '/old',
      weights: { key: '1:1:1:old', version: 'old' },
    }));
    this.replicas = Array.from({ length: count }, () => ({ state: 'ready' }));
  }

  replace(replica: number, changes: Changes, how: 'beside' | 'after'): Promise<Replaced> {
    this.calls.push(`replace ${replica} ${how}`);
    const outcome = this.outcomes.shift() ?? { kind: 'replaced' };
    if (outcome.kind === 'replaced') this.setups[replica] = { ...changes };
    return Promise.resolve(outcome);
  }
}

function scene(count: number) {
  const calls: string[] = [];
  const engines = { m: new FakeEngine(count, calls), other: new FakeEngine(1, calls) };
  const log = new RecordingLog();
  const starts: FirstStart[] = [];
  const files: Record<string, { readonly place: string; readonly version: string }> = { ...FILES };
  const parts: ReloadParts = {
    models: new Map(
      Object.entries(engines).map(([id, engine]) => [id, { id, engine: engine as unknown as ReplicatedEngine }]),
    ),
    files: {
      of: (file) => {
        const found = files[file];
        if (found === undefined) return Promise.resolve({ kind: 'unread', why: 'cannot be read' });
        const key = `${found.place}:${found.version}`;
        return Promise.resolve({ kind: 'hashed', file: { key, version: found.version } });
      },
    },
    prompts: {
      startNext: (models) => {
        calls.push(`start ${models.map(({ file }) => file).join(' ')}`);
        return Promise.resolve(starts.shift() ?? { kind: 'ready', models: [] });
      },
      switchToNext: () => void calls.push('switch'),
      retireNext: () => void calls.push('retire next'),
      retireOthers: () => void calls.push('retire others'),
    },
    promptModels: Object.keys(engines).map((id) => ({ id, file: '/old' }) as PromptModel),
    log,
  };
  const reload: Reload = reloader(parts);
  /** The calls since the last time. */
  const called = (): string[] => calls.splice(0);
  return { ...engines, reload, called, log, starts, files };
}

t.test('replica by replica, and prompts by the hosts that most replicas want', async (t) => {
  const { reload, called, m } = scene(4);
  t.same(await reload('m', '/new'), { kind: 'reloaded', version: 'new', replicas: 4, file: '/new' });
  t.strictSame(called(), [
    ...['start /new /old', 'replace 0 beside', 'replace 1 beside', 'switch', 'replace 2 beside', 'replace 3 beside'],
    'retire others',
  ]);
  t.same(await reload('m', undefined), { kind: 'reloaded', version: 'new', replicas: 0, file: '/new' });
  t.strictSame(called(), [], 'all have it');
  m.replicas[2] = { state: 'lost' };
  t.match(await reload('m', undefined), { replicas: 1 });
  t.strictSame(
    called(),
    ['start /new /old', 'replace 2 beside', 'switch', 'retire others'],
    'one that is lost gets it anew',
  );
});

t.test('a failure at the first replica changes nothing', async (t) => {
  const { reload, called, m, log } = scene(2);
  m.outcomes.push(BAD);
  t.same(await reload('m', '/new'), { kind: 'failed', why: 'replica 0: no model (nothing was changed)' });
  t.strictSame(called(), ['start /new /old', 'replace 0 beside', 'retire next']);
  t.match(log.lines.at(-1), { event: 'weights not reloaded', model: 'm', replica: 0, reason: 'no model' });
  await reload('m', '/newer');
  t.equal(called()[0], 'start /newer /old');
});

t.test('a failure on the way keeps prompts of both kinds, until the replicas agree', async (t) => {
  const { reload, called, m } = scene(2);
  m.outcomes.push({ kind: 'replaced' }, BAD);
  t.same(await reload('m', '/new'), {
    kind: 'failed',
    why: 'replica 1: no model (1 of 2 replicas have the new weights)',
  });
  t.strictSame(called(), ['start /new /old', 'replace 0 beside', 'switch', 'replace 1 beside']);
  t.match(await reload('other', '/newer'), { kind: 'reloaded' });
  t.strictSame(
    called(),
    ['start /new /newer', 'replace 0 beside', 'switch'],
    'the hosts of the other model’s former weights stay',
  );
  m.outcomes.push(BAD);
  t.match(await reload('m', '/newer'), { kind: 'failed' });
  t.strictSame(
    called(),
    ['start /newer /newer', 'replace 0 beside', 'retire next'],
    'only those that this one started',
  );
  t.match(await reload('m', '/new'), { kind: 'reloaded', replicas: 1 });
  t.strictSame(called(), ['start /new /newer', 'replace 1 beside', 'switch', 'retire others']);
});

t.test('without memory for two a replica makes room while another serves', async (t) => {
  const { reload, called, m } = scene(2);
  m.outcomes.push(NO_MEMORY);
  t.match(await reload('m', '/new'), { kind: 'reloaded', replicas: 2 });
  t.strictSame(called(), [
    'start /new /old',
    'replace 0 beside',
    'replace 0 after',
    'switch',
    'replace 1 beside',
    'retire others',
  ]);
  m.replicas[1] = { state: 'cold' };
  m.outcomes.push(NO_MEMORY);
  t.match(await reload('m', '/newer'), { kind: 'failed', why: /no other replica that would serve/ });
  t.strictSame(called(), ['start /newer /old', 'replace 0 beside', 'retire next']);
  m.replicas[1] = { state: 'ready' };
  m.outcomes.push(NO_MEMORY, BAD);
  t.match(await reload('m', '/newer'), { kind: 'failed', why: /^replica 0: no model/ });
});

t.test('refused before anything is started', async (t) => {
  const { reload, called, m, files, starts } = scene(2);
  t.same(await reload('none', '/new'), { kind: 'unknown-model' });
  t.match(await reload('m', '/none'), { kind: 'failed', why: '/none cannot be read' });
  files['/old'] = { place: '1:1:1', version: 'other' };
  t.match(await reload('m', undefined), { kind: 'failed', why: /^\/old was written to in place/ });
  m.setups[1] = { file: '', remote: {} };
  t.match(await reload('m', '/new'), { kind: 'failed', why: 'its weights are on an external server' });
  t.strictSame(called(), []);
  const [first, second] = [reload('other', '/new'), reload('other', '/newer')];
  t.same(await second, { kind: 'failed', why: 'another reload is running' });
  t.match(await first, { kind: 'reloaded' });
  called();
  starts.push({ kind: 'unable' });
  t.match(await reload('other', '/newer'), { kind: 'failed', why: /could not be started/ });
  starts.push({ kind: 'ready', models: [{ id: 'other', tools: true, system: true, problem: 'no template' }] });
  t.match(await reload('other', '/newer'), { kind: 'failed', why: 'no template' });
  t.strictSame(called(), ['start /old /newer', 'retire next', 'start /old /newer', 'retire next']);
});

t.test('weights whose template has no known format of calls are logged, of the reloaded model alone', async (t) => {
  const { reload, starts, log } = scene(1);
  const calls = { native: false, chosen: false, says: 'how it calls' } as const;
  const models = ['m', 'other'].map((id) => ({ id, tools: true, system: true, calls }));
  starts.push({ kind: 'ready', models });
  t.match(await reload('m', '/new'), { kind: 'reloaded', version: 'new', replicas: 1 });
  const warned = log.lines.filter(({ event }) => event === 'tools without a native format');
  t.match(warned, [{ model: 'm', reason: 'how it calls' }]);
  t.equal(warned.length, 1);
});
