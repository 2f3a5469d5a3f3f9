import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import { sourceRoot } from '../support/source-root.js';
import { longestStopMs } from './stop-time.js';
import { INSTALLED, span, unit } from './unit-file.js';

/** Where Prometheus listens by default. */
const PROMETHEUS_PORT = 9090;

/** The configuration of a unit of this name, without its own file. */
function configOf(name: string): Config {
  const pairs = (unit(name).get('Environment') ?? []).map((line) => line.split('=') as [string, string]);
  const { RA_CONFIG: file, ...environment } = Object.fromEntries(pairs);
  t.equal(file, `/etc/ra-sidecar/${name}.jsonc`);
  const loaded = loadConfig(environment);
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

for (const name of ['ra-sidecar', 'ra-sidecar@a']) {
  t.test(`${name}.service agrees with the sidecar`, async (t) => {
    const values = unit(name);
    const one = (key: string): string => {
      t.equal(values.get(key)?.length, 1, key);
      return values.get(key)?.[0] ?? '';
    };
    const config = configOf(name);

    const [, script = '', command] = one('ExecStart').split(' ');
    t.equal(command, 'serve');
    // The tests run from dist/, which lies in the repository's root.
    t.ok(existsSync(script.replace(INSTALLED, sourceRoot)), script);
    t.equal(one('Documentation'), `file://${INSTALLED}/docs/deploy.md`);
    const { files } = JSON.parse(readFileSync(join(sourceRoot, 'package.json'), 'utf8')) as { files: string[] };
    t.ok(files.includes('docs'), 'which the package has');

    t.equal(dirname(config.listen.socket ?? ''), `/run/${one('RuntimeDirectory')}`);
    t.equal(config.listen.tcp, false);
    t.equal(config.environment, 'production', 'no start makes a key and prints it');
    t.equal(config.dataDir, `/var/lib/${one('StateDirectory')}`);
    t.equal(one('WorkingDirectory'), config.dataDir);

    const toStop = longestStopMs(config);
    t.ok(span(one('TimeoutStopSec')) > toStop, `stops within ${toStop} ms`);
    t.ok(span(one('TimeoutStartSec')) > config.engine.startTimeoutMs);
    t.equal(one('KillMode'), 'mixed', 'engines finish running requests');
    t.equal(one('Type'), 'notify');
    t.equal(one('NotifyAccess'), 'all', 'systemd-notify is a child');
    t.match(one('ExecReload'), /kill -HUP \$MAINPID$/);
    t.notOk(values.has('MemoryDenyWriteExecute'), 'V8 compiles while it runs');
    t.notOk(values.has('PrivateDevices'), 'a GPU is accessible as a device');
    t.ok(values.get('Wants')?.includes('ra-sidecar-nvidia.service'), 'modprobe creates /dev/nvidia-uvm');
    t.ok(one('After').split(' ').includes('ra-sidecar-nvidia.service'), 'beforehand');
    t.ok(existsSync(join(sourceRoot, 'deploy/systemd/ra-sidecar-nvidia.service')));
  });
}

t.test('the environment file contains settings', async (t) => {
  const text = readFileSync(join(sourceRoot, 'deploy/systemd/ra-sidecar.env'), 'utf8');
  const pairs = text.split('\n').filter((line) => /^[A-Z]/.test(line));
  t.ok(pairs.length > 0);
  const loaded = loadConfig(Object.fromEntries(pairs.map((line) => line.split('=') as [string, string])));
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const { port } = loaded.config.operators;
  t.not(port, PROMETHEUS_PORT, 'a Prometheus on this host does not conflict');
  const scraped = readFileSync(join(sourceRoot, 'deploy/prometheus/prometheus.yml'), 'utf8');
  const ports = [...scraped.matchAll(/'127\.0\.0\.1:(\d+)'/g)].map((found) => Number(found[1]));
  t.strictSame(ports, [port, port + 1], 'and scrapes both instances');
});

t.test('the page creates keys where both instances read them, for their environment', async (t) => {
  const page = readFileSync(join(sourceRoot, 'docs/deploy.md'), 'utf8');
  const [, file, environment] = /^export RA_CONFIG=(\S+) RA_ENVIRONMENT=(\S+)/m.exec(page) ?? [];
  t.equal(file, '/etc/ra-sidecar/ra-sidecar.jsonc');
  t.equal(environment, configOf('ra-sidecar').environment);
  const [, keys = ''] = /^\{ "keys": \{ "file": "([^"]+)" \} \}$/m.exec(page) ?? [];
  t.match(keys, /^\/etc\//, 'which ProtectSystem leaves readable, and which belongs to neither instance');
  t.ok(page.includes(`keys=${keys} `), 'and makes the file');
  t.match(page, /install -o ra-sidecar -g ra-sidecar -m 0600 \/dev\/stdin \$keys\n/, 'for the sidecar’s user');
});

t.test('the page creates the user of the unit', async (t) => {
  const made = readFileSync(join(sourceRoot, 'deploy/systemd/ra-sidecar.sysusers'), 'utf8');
  t.match(made, /^u ra-sidecar /m);
  t.strictSame([unit('ra-sidecar').get('User'), unit('ra-sidecar').get('Group')], [['ra-sidecar'], ['ra-sidecar']]);
  t.match(readFileSync(join(sourceRoot, 'deploy/haproxy/haproxy.cfg'), 'utf8'), /^ {2}group ra-sidecar$/m);
});
