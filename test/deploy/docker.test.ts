import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { sourceRoot } from '../support/source-root.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');
const lines = read('deploy/docker/Dockerfile').split('\n');

/** The arguments of each instruction of one kind. */
function all(instruction: string): string[][] {
  return lines.filter((line) => line.startsWith(`${instruction} `)).map((line) => line.split(/\s+/).slice(1));
}

t.test('copied files exist and are not excluded by .dockerignore', async (t) => {
  const admitted = read('.dockerignore')
    .split('\n')
    .filter((line) => line.startsWith('!'))
    .map((line) => line.slice(1));
  const copied = all('COPY')
    .filter(([first = '']) => !first.startsWith('--from'))
    .flatMap((words) => words.slice(0, -1));
  // A file of an included folder that is itself excluded.
  const apart = admitted.filter((path) => !copied.some((folder) => path.startsWith(`${folder}/`)));
  t.strictSame(apart.sort(), copied.sort(), 'nothing else is copied');
  for (const path of copied) t.ok(existsSync(join(sourceRoot, path)), path);
});

t.test('its settings exist, and its port and Node version are the sidecar’s', async (t) => {
  const environment = Object.fromEntries(
    all('ENV')
      .map(([pair = '']) => pair.split('=') as [string, string])
      .filter(([name]) => name.startsWith('RA_')),
  );
  const loaded = loadConfig(environment);
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  t.equal(loaded.config.environment, 'production', 'a start never creates and prints a key');
  t.strictSame(all('EXPOSE'), [[String(loaded.config.listen.port)]]);
  t.strictSame(all('VOLUME'), [[loaded.config.dataDir]]);
  const health = lines.find((line) => line.startsWith('HEALTHCHECK')) ?? '';
  t.ok(health.includes(`|| ${loaded.config.operators.port}`), 'asks the operators’ listener');
  const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
  const [image = ''] = all('ARG')
    .map(([pair = '']) => pair.split('NODE_IMAGE=')[1])
    .filter((name) => name !== undefined);
  // Debian 13 has the glibc that the HTTP library requires on this Node.
  const major = /^node:(\d+)-trixie-slim$/.exec(image)?.[1] ?? '';
  t.ok(engines.node.includes(`^${major}.`), `${image} is one of ${engines.node}`);
});

t.test('it runs as an unprivileged user, and contains no secrets', async (t) => {
  t.match(all('USER').at(-1)?.[0], /^[1-9]\d*:[1-9]\d*$/);
  t.notMatch(lines.join('\n'), /secret|token|password|\.npmrc.*_auth/i);
  t.ok(lines.includes('RUN node .ci/install.mjs none'), 'the versions of the lock file, and no backend of a GPU');
  t.ok(lines.some((line) => line.includes('npm_config_omit=dev node .ci/install.mjs none')));
  t.notMatch(
    lines.filter((line) => !line.startsWith('#')).join('\n'),
    /npm (ci|install|prune)/,
    'which would fetch all',
  );
});
