import t from 'tap';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { connectionBounds, descriptorLimit, DescriptorReserve } from '../../../sidecar/app/descriptors.js';
import { FakeClock } from '../../support/fake-clock.js';

function configured(environment: Record<string, string> = {}): Config {
  const loaded = loadConfig(environment);
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

/** The public listener’s bound; undefined: the start is refused. */
function publicBound(config: Config, limit: number): number | undefined {
  const shared = connectionBounds(config, limit);
  return shared.kind === 'bounds' ? shared.bounds.public : undefined;
}

t.test('the default leaves a reserve below the limit, and has its own maximum', async (t) => {
  const config = configured();
  const bound = publicBound(config, 1024) ?? 0;
  t.ok(bound > 512 && bound < 1024 - 128, String(bound));
  t.equal(publicBound(config, 2048), bound + 1024, 'the reserve does not grow with the limit');
  t.equal(publicBound(config, Infinity), 65_536);
  t.equal(publicBound(config, 128), undefined, 'no service with so few');
});

t.test('lookups at an authorizer need connections too', async (t) => {
  const url = {
    RA_ACCESS_MODE: 'authorizer',
    RA_AUTHORIZER_URL: 'http://127.0.0.1:1/',
    RA_AUTHORIZER_CONCURRENCY: '100',
  };
  t.equal((publicBound(configured(), 1024) ?? 0) - (publicBound(configured(url), 1024) ?? 0), 100);
});

t.test('each engine needs some: every replica, and every external server', async (t) => {
  const [model] = configured().models;
  if (!model) throw new Error('no model');
  const bound = (more: Partial<typeof model>): number =>
    publicBound({ ...configured(), models: [{ ...model, ...more }] }, 4096) ?? 0;
  const one = bound({});
  t.equal(one - bound({ replicas: 8 }), 7 * 8);
  t.equal(one - bound({ replicas: [{}, {}, {}] }), 2 * 8);
  t.equal(one - bound({ replicas: 'auto' }), 15 * 8);
  const url = ['http://127.0.0.1:1', 'http://127.0.0.1:2'];
  t.equal(one - bound({ engine: { ...model.engine, kind: 'vllm', url } }), 8);
});

t.test('a setting that does not fit below the limit refuses the start, in one line', async (t) => {
  const config = configured({ RA_LISTEN_MAX_CONNECTIONS: '1000' });
  t.equal(publicBound(config, 4096), 1000);
  const shared = connectionBounds(config, 1024);
  t.match(shared, {
    kind: 'short',
    line: /^open files: at most 1024, .* listen\.maxConnections needs 1000 more: .*LimitNOFILE/,
  });
});

t.test('the limit is read from the kernel', async (t) => {
  const limits = (soft: string): string =>
    `Max processes    1  1  processes\nMax open files            ${soft}  9  files\n`;
  t.equal(descriptorLimit(limits('256')), 256);
  t.equal(descriptorLimit(limits('unlimited')), Infinity);
  t.equal(descriptorLimit(''), Infinity);
  t.ok(descriptorLimit() > 0);
});

t.test('a reserve is closed if no descriptor is left, and opened again when there are enough', async (t) => {
  const clock = new FakeClock();
  /** Descriptors that the process could still open. */
  let free = 100;
  const descriptors = {
    open: () => (free > 0 ? (free -= 1) : undefined),
    close: () => {
      free += 1;
    },
  };
  const changes: boolean[] = [];
  const reserve = new DescriptorReserve(clock, (refusing) => changes.push(refusing), descriptors);
  t.equal(free, 92);
  clock.advance(5000);
  t.same([free, reserve.refusing], [92, false], 'a check uses none for long');
  free = 0;
  clock.advance(1000);
  t.same([free, reserve.refusing], [8, true]);
  free = 5;
  clock.advance(1000);
  t.same([free, reserve.refusing], [5, true], 'too few to be without a reserve');
  free = 9;
  clock.advance(1000);
  t.same([free, reserve.refusing], [1, false]);
  free = 0;
  clock.advance(1000);
  t.equal(reserve.refusing, true);
  t.same(changes, [true, false, true]);
  reserve.close();
  reserve.close();
  free = 100;
  clock.advance(5000);
  t.equal(free, 100, 'no more checks');
});
