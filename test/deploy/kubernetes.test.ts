/**
 * The files of deploy/kubernetes agree with each other and with the sidecar. schemas.test.ts checks that Kubernetes
 * accepts them; test/contract/fleet.test.ts checks what a sidecar reports to the endpoint picker.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import { storeAddressOf } from '../../sidecar/config/store-schema.js';
import { knownSeries, unknownIn } from '../support/promql.js';
import { sourceRoot } from '../support/source-root.js';
import {
  at,
  COMPONENTS,
  documents,
  engineSpecs,
  flagSpecs,
  FOLDER,
  listAt,
  manifest,
  manifests,
  mapAt,
  patched,
  pickerConfig,
  SERVERS,
  textAt,
  type Node,
} from './manifests.js';
import { MEMORY_FILES } from '../../sidecar/engine-client/engine.js';
import { longestStopMs } from './stop-time.js';

/** Kustomize’s pattern. A patch whose target is no longer there is passed over without an error. */
const EITHER_KIND = { kind: 'StatefulSet|Deployment', name: 'ra-sidecar' };
const LABELS = { 'app.kubernetes.io/name': 'ra-sidecar' };
const set = manifest('StatefulSet');
const pod = mapAt(set, 'spec.template.spec');
const container = listAt(pod, 'containers')[0];
const known = await knownSeries();

/** As the pod gets it: the image’s variables, the container’s over them, and the file. */
function config(): Config {
  const dockerfile = readFileSync(join(sourceRoot, 'deploy/docker/Dockerfile'), 'utf8');
  const image = [...dockerfile.matchAll(/^ENV (RA_[A-Z_]+)=(\S+)$/gm)].map(([, name = '', value = '']) => [
    name,
    value,
  ]);
  const own = listAt(container, 'env').map((pair) => [textAt(pair, 'name'), textAt(pair, 'value')]);
  const environment = Object.fromEntries([...image, ...own]) as Record<string, string>;
  t.equal(environment['RA_CONFIG'], mountPath('settings'), 'the settings are where the sidecar reads them');
  const loaded = loadConfig({ ...environment, RA_CONFIG: join(FOLDER, 'ra-sidecar.jsonc') });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

function mountPath(name: string): string {
  const mount = listAt(container, 'volumeMounts').find((one) => at(one, 'name') === name);
  return textAt(mount, 'mountPath');
}

t.test('the kustomization names existing files, and all of its folder', async (t) => {
  const [kustomization] = documents('kustomization.yaml');
  const named = listAt(kustomization, 'resources').map(String);
  for (const file of named) t.ok(existsSync(join(FOLDER, file)), file);
  const own = new Set(manifests().flatMap(({ file }) => (file.includes('/') ? [] : [file])));
  t.strictSame([...own].sort(), [...named].sort());
  t.strictSame(listAt(kustomization, 'configMapGenerator.0.files'), ['ra-sidecar.jsonc']);
  t.equal(at(kustomization, 'configMapGenerator.0.name'), at(volume('settings'), 'configMap.name'));
  t.equal(at(kustomization, 'images.0.name'), at(container, 'image'));
  const namespace = textAt(kustomization, 'namespace');
  t.equal(at(manifest('Namespace', namespace), 'metadata.name'), namespace);
  for (const { file, object } of manifests()) {
    if (file.includes('/')) t.equal(at(object, 'metadata.namespace'), namespace, `${file} is not created by it`);
  }
});

t.test('as a Deployment the pods are the same, except for a disk that is deleted with each', async (t) => {
  const [component] = documents('deployment/kustomization.yaml');
  t.equal(at(component, 'kind'), 'Component');
  t.match(at(component, 'patches.0'), {
    path: 'patch.yaml',
    target: { kind: 'StatefulSet', name: at(set, 'metadata.name') },
    options: { allowKindChange: true },
  });
  const [, listed = ''] =
    /^# components:\n((?:#.*\n)+)/m.exec(readFileSync(join(FOLDER, 'kustomization.yaml'), 'utf8')) ?? [];
  const components = [...listed.matchAll(/^# {3}- (\S+)$/gm)].map(([, name]) => name);
  t.strictSame([...components].sort(), [...COMPONENTS].sort());
  t.equal(components.at(-1), 'deployment', 'after all others, whose patches name places that it moves');
  const made = patched('deployment');
  t.equal(at(made, 'kind'), 'Deployment');
  for (const same of ['metadata', 'spec.selector', 'spec.template.metadata'])
    t.strictSame(at(made, same), at(set, same));
  const { volumes, ...others } = mapAt(made, 'spec.template.spec');
  const { volumes: shared, ...expected } = pod;
  t.strictSame(others, expected);
  const [data, ...rest] = volumes as readonly Node[];
  t.strictSame(rest, shared);
  t.strictSame(data, {
    name: 'data',
    ephemeral: { volumeClaimTemplate: { spec: at(set, 'spec.volumeClaimTemplates.0.spec') } },
  });
  const startS =
    Number(at(container, 'startupProbe.periodSeconds')) * Number(at(container, 'startupProbe.failureThreshold'));
  t.ok(
    Number(at(made, 'spec.progressDeadlineSeconds')) > startS,
    'a slow start is not a failure until the startup probe gives up',
  );
});

t.test('with a store the settings are valid, and the Job prepares the database that the pods use', async (t) => {
  const made = patched('store');
  const [sidecar] = listAt(made, 'spec.template.spec.containers');
  const job = manifest('Job', 'ra-sidecar-store-migrate');
  const [migrate] = listAt(job, 'spec.template.spec.containers');
  const settings = (of: Node | undefined): Record<string, string> =>
    Object.fromEntries(listAt(of, 'env').map((pair) => [textAt(pair, 'name'), textAt(pair, 'value')]));
  const loaded = loadConfig({ ...settings(sidecar), RA_CONFIG: join(FOLDER, 'ra-sidecar.jsonc') });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const { store } = loaded.config;
  const command = listAt(migrate, 'command').map(String);
  const after = (flag: string): string => command[command.indexOf(flag) + 1] ?? '';
  const [own, owners] = [storeAddressOf(store.url ?? ''), storeAddressOf(after('--url'))];
  t.match(own, { tls: true });
  t.strictSame(owners, { ...own, user: owners?.user });
  t.not(owners?.user, own?.user);
  t.equal(settings(migrate)['RA_STORE_URL'], store.url, 'it grants the functions to the user of the pods');
  for (const [of, template, files] of [
    [sidecar, made, [store.passwordFile, store.caFile]],
    [migrate, job, [after('--password-file'), settings(migrate)['RA_STORE_CA_FILE']]],
  ] as const) {
    const mount = listAt(of, 'volumeMounts').find((one) => at(one, 'name') === 'store');
    t.ok(listAt(template, 'spec.template.spec.volumes').some((one) => at(one, 'name') === 'store'));
    for (const file of files) t.ok(file?.startsWith(`${textAt(mount, 'mountPath')}/`), 'it is mounted');
  }
  t.equal(at(migrate, 'image'), at(container, 'image'));
  t.strictSame(listAt(documents('store/kustomization.yaml')[0], 'resources'), ['migrate.yaml']);
  t.match(at(documents('store/kustomization.yaml')[0], 'patches.0'), { path: 'patch.yaml', target: EITHER_KIND });
});

function volume(name: string): Node | undefined {
  return listAt(pod, 'volumes').find((one) => at(one, 'name') === name);
}

t.test('all selectors select these pods', async (t) => {
  t.match(mapAt(set, 'spec.template.metadata.labels'), LABELS);
  const selectors = {
    StatefulSet: mapAt(set, 'spec.selector.matchLabels'),
    Service: mapAt(manifest('Service'), 'spec.selector'),
    'headless Service': mapAt(manifest('Service', 'ra-sidecar-each'), 'spec.selector'),
    PodDisruptionBudget: mapAt(manifest('PodDisruptionBudget'), 'spec.selector.matchLabels'),
    PodMonitor: mapAt(manifest('PodMonitor'), 'spec.selector.matchLabels'),
    InferencePool: mapAt(manifest('InferencePool'), 'spec.selector.matchLabels'),
    spread: mapAt(pod, 'topologySpreadConstraints.0.labelSelector.matchLabels'),
    'epp-values.yaml': mapAt(documents('inference/epp-values.yaml')[0], 'inferencePool.modelServers.matchLabels'),
    'epp-flags-values.yaml': mapAt(
      documents('inference/epp-flags-values.yaml')[0],
      'inferencePool.modelServers.matchLabels',
    ),
  };
  for (const [name, selector] of Object.entries(selectors)) t.strictSame(selector, LABELS, name);
  t.equal(at(set, 'spec.serviceName'), at(manifest('Service', 'ra-sidecar-each'), 'metadata.name'));
  t.equal(at(manifest('Service', 'ra-sidecar-each'), 'spec.clusterIP'), 'None');
  for (const kind of ['ScaledObject', 'HorizontalPodAutoscaler']) {
    t.match(mapAt(manifest(kind), 'spec.scaleTargetRef'), { kind: 'StatefulSet', name: 'ra-sidecar' }, kind);
  }
  t.match(listAt(manifest('HTTPRoute'), 'spec.rules.1.backendRefs'), [{ kind: 'InferencePool', name: 'ra-sidecar' }]);
  const [direct] = listAt(manifest('HTTPRoute'), 'spec.rules.0.backendRefs');
  t.match(listAt(manifest('Service', textAt(direct, 'name')), 'spec.ports'), [{ port: at(direct, 'port') }]);
});

t.test('all files use the port that the sidecar listens on', async (t) => {
  const { listen } = config();
  t.strictSame(listAt(container, 'ports'), [{ name: 'http', containerPort: listen.port }]);
  t.equal(listen.host, '::', 'IPv4 and IPv6');
  const ports = [
    at(manifest('InferencePool'), 'spec.targetPorts.0.number'),
    at(documents('inference/epp-values.yaml')[0], 'inferencePool.targetPorts.0.number'),
    at(documents('inference/epp-flags-values.yaml')[0], 'inferencePool.targetPorts.0.number'),
    at(manifest('Service', 'ra-sidecar-each'), 'spec.ports.0.port'),
  ];
  t.strictSame(ports, [listen.port, listen.port, listen.port, listen.port]);
  for (const name of ['ra-sidecar', 'ra-sidecar-each']) {
    t.equal(at(manifest('Service', name), 'spec.ports.0.targetPort'), 'http', name);
  }
  t.match(at(container, 'readinessProbe.httpGet'), { port: 'http', path: '/readyz' });
  t.equal(at(manifest('PodMonitor'), 'spec.podMetricsEndpoints.0.port'), 'http');
});

t.test(
  'probes that restart the pod ask the operators’ listener, where no caller can take the connections',
  async (t) => {
    const { operators } = config();
    t.strictSame(operators, { host: '127.0.0.1', port: 9090 }, 'where the command asks');
    const command = listAt(container, 'livenessProbe.exec.command').map(String);
    t.strictSame(listAt(container, 'startupProbe.exec.command').map(String), command);
    const health = /^HEALTHCHECK .* CMD (\[.*\])$/m.exec(
      readFileSync(join(sourceRoot, 'deploy/docker/Dockerfile'), 'utf8'),
    );
    t.strictSame(command, JSON.parse(health?.[1] ?? '[]'));

    let status = 200;
    const asked: string[] = [];
    const server = createServer(({ url = '' }, response) => {
      asked.push(url);
      response.writeHead(status).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const exitCode = async (): Promise<unknown> => {
      const [, ...args] = command;
      const child = spawn(process.execPath, args, { env: { RA_OPERATORS_PORT: String(port) }, stdio: 'ignore' });
      return ((await once(child, 'exit')) as unknown[])[0];
    };
    t.equal(await exitCode(), 0);
    status = 503;
    t.equal(await exitCode(), 1);
    t.strictSame(asked, ['/healthz', '/healthz']);
    server.closeAllConnections();
    await once(server.close(), 'close');
    t.equal(await exitCode(), 1, 'nothing listens');
  },
);

t.test('the pod’s grace period covers a drain', async (t) => {
  const settings = config();
  const [sleep, seconds] = listAt(container, 'lifecycle.preStop.exec.command');
  t.equal(sleep, 'sleep');
  const preStopMs = Number(seconds) * 1000;
  t.ok(preStopMs >= 1000, 'load balancers notice it meanwhile');
  const toStop = preStopMs + longestStopMs(settings);
  t.ok(Number(pod['terminationGracePeriodSeconds']) * 1000 > toStop, `stops within ${toStop} ms`);
  const periodMs = Number(at(container, 'readinessProbe.periodSeconds')) * 1000;
  t.ok(settings.drain.noticeMs >= 3 * periodMs, 'three probes of /readyz');
});

t.test('persistent files are on the replica’s own volume, and files to be read are mounted', async (t) => {
  const { dataDir, keys, fleet, models, usage, environment } = config();
  t.equal(environment, 'production', 'a start never creates and prints a key');
  const claims = listAt(set, 'spec.volumeClaimTemplates');
  t.strictSame(
    claims.map((claim) => at(claim, 'metadata.name')),
    ['data'],
  );
  t.equal(dataDir, mountPath('data'));
  t.strictSame(mapAt(set, 'spec.persistentVolumeClaimRetentionPolicy'), {
    whenDeleted: 'Retain',
    whenScaled: 'Retain',
  });
  const gib = /^(\d+)Gi$/.exec(textAt(claims[0], 'spec.resources.requests.storage'))?.[1];
  t.ok(Number(gib) * 2 ** 30 > 2 * usage.maxBacklogBytes, 'room for a full spool');
  t.equal(keys.file, `${mountPath('keys')}/keys.json`);
  t.equal(fleet.scrapeSecretFile, `${mountPath('scrape')}/secret`);
  t.match(mapAt(manifest('PodMonitor'), 'spec.podMetricsEndpoints.0.authorization'), {
    type: 'Bearer',
    credentials: { name: at(volume('scrape'), 'secret.secretName'), key: 'secret' },
  });
  for (const { file } of models) t.ok(file.startsWith(`${mountPath('models')}/`), file);
  t.equal(at(volume('models'), 'persistentVolumeClaim.claimName'), 'ra-sidecar-models');
  manifest('PersistentVolumeClaim', 'ra-sidecar-models');
  const writable = listAt(container, 'volumeMounts').flatMap((one) =>
    at(one, 'readOnly') === true ? [] : [textAt(one, 'name')],
  );
  t.strictSame(writable, ['data', 'tmp', 'shm']);
  t.equal(mountPath('shm'), MEMORY_FILES);
  t.equal(at(volume('shm'), 'emptyDir.medium'), 'Memory', 'where prefix caches are');
});

t.test('the documented command makes a secret that Prometheus can send', async (t) => {
  const page = readFileSync(join(sourceRoot, 'docs/kubernetes.md'), 'utf8');
  const [command = ''] = /^.* > secret$/m.exec(page) ?? [];
  const dir = t.testdir();
  t.equal(spawnSync('sh', ['-c', command], { cwd: dir }).status, 0, command);
  // As sidecar/config/schema.ts describes them, and no line break: the operator passes the file on as it is.
  t.match(readFileSync(join(dir, 'secret'), 'latin1'), /^[!-~]{32,256}$/);
});

t.test('it runs without privileges and on a GPU', async (t) => {
  const user = /^USER (\d+):(\d+)$/m.exec(readFileSync(join(sourceRoot, 'deploy/docker/Dockerfile'), 'utf8'));
  t.match(pod['securityContext'], {
    runAsNonRoot: true,
    runAsUser: Number(user?.[1]),
    runAsGroup: Number(user?.[2]),
    fsGroup: Number(user?.[2]),
    seccompProfile: { type: 'RuntimeDefault' },
  });
  t.strictSame(mapAt(container, 'securityContext'), {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  });
  t.equal(pod['automountServiceAccountToken'], false);
  t.equal(pod['enableServiceLinks'], false);
  t.equal(mapAt(container, 'resources.limits')['nvidia.com/gpu'], '1');
  t.ok(config().models.every(({ gpu }) => gpu === 'cuda'));
});

t.test('autoscalers query existing metrics, and the same ones', async (t) => {
  const triggers = listAt(manifest('ScaledObject'), 'spec.triggers');
  const queries = triggers.map((trigger) => textAt(trigger, 'metadata.query'));
  const rules = listAt(documents('autoscaling/prometheus-adapter-values.yaml')[0], 'rules.external');
  const adapted = rules.map((rule) => textAt(rule, 'metricsQuery'));
  for (const query of [...queries, ...adapted.map((text) => text.replaceAll('<<.LabelMatchers>>', 'job="x"'))]) {
    t.strictSame(unknownIn(query, known), [], query);
  }
  for (const rule of rules) t.strictSame(unknownIn(textAt(rule, 'seriesQuery').replace(/\{.*/, ''), known), []);
  t.strictSame(
    adapted.map((text) => text.replaceAll('<<.LabelMatchers>>', 'job="ra-sidecar"')),
    queries,
    'the adapter’s rules equal KEDA’s queries',
  );
  const hpa = manifest('HorizontalPodAutoscaler');
  const metrics = listAt(hpa, 'spec.metrics');
  t.strictSame(
    metrics.map((metric) => at(metric, 'external.metric.name')),
    rules.map((rule) => at(rule, 'name.as')),
  );
  t.strictSame(
    metrics.map((metric) => at(metric, 'external.target.value') ?? at(metric, 'external.target.averageValue')),
    triggers.map((trigger) => at(trigger, 'metadata.threshold')),
  );
  t.strictSame(
    metrics.map((metric) => at(metric, 'external.target.type')),
    triggers.map((trigger) => at(trigger, 'metricType')),
  );
  for (const trigger of triggers) {
    t.equal(at(trigger, 'metadata.ignoreNullValues'), 'false', 'an unavailable Prometheus does not scale down');
    // KEDA accepts them only as text.
    for (const [name, value] of Object.entries(mapAt(trigger, 'metadata'))) t.equal(typeof value, 'string', name);
  }
  const scaled = manifest('ScaledObject');
  t.strictSame(
    [at(scaled, 'spec.minReplicaCount'), at(scaled, 'spec.maxReplicaCount')],
    [at(hpa, 'spec.minReplicas'), at(hpa, 'spec.maxReplicas')],
  );
  t.strictSame(
    at(scaled, 'spec.advanced.horizontalPodAutoscalerConfig.behavior'),
    at(hpa, 'spec.behavior'),
    'with the same delays',
  );
  t.ok(Number(at(triggers[1], 'metadata.threshold')) < 1, 'before all seats of all replicas are taken');
});

t.test('both configurations of the endpoint picker name existing metrics', async (t) => {
  t.strictSame(flagSpecs(), engineSpecs());
  const { lora, ...specs } = engineSpecs();
  t.equal(lora, '', 'no metric of LoRA adapters is read');
  for (const spec of Object.values(specs)) t.strictSame(unknownIn(spec, known), [], spec);
  const picker = pickerConfig();
  const types = listAt(picker, 'plugins').map((plugin) => textAt(plugin, 'type'));
  const references = [
    ...listAt(picker, 'schedulingProfiles.0.plugins'),
    ...listAt(picker, 'dataLayer.sources'),
    ...listAt(picker, 'dataLayer.sources.0.extractors'),
    mapAt(picker, 'saturationDetector'),
  ].map((one) => textAt(one, 'pluginRef'));
  t.strictSame([...new Set(references)].sort(), [...types].sort(), 'each plugin is used and defined');
  const detector = listAt(picker, 'plugins').find((plugin) => at(plugin, 'type') === 'utilization-detector');
  const seats = config().models.reduce((sum, model) => sum + model.seats, 0);
  t.strictSame(
    mapAt(detector, 'parameters'),
    { queueDepthThreshold: seats, kvCacheUtilThreshold: 1 },
    'a pod with a free seat is not full',
  );
  const labels = mapAt(set, 'spec.template.metadata.labels');
  const engine = listAt(picker, 'plugins').find((plugin) => at(plugin, 'type') === 'core-metrics-extractor');
  for (const label of ['inference.networking.k8s.io/engine-type', 'llm-d.ai/engine-type']) {
    t.equal(labels[label], at(engine, 'parameters.defaultEngine'), label);
  }
  t.match(config().fleet, { pickerMetrics: true, loadReport: 'asked' });
});

t.test('the route forwards the API only', async (t) => {
  const rules = listAt(manifest('HTTPRoute'), 'spec.rules');
  t.strictSame(
    rules.map((rule) => listAt(rule, 'matches')),
    [
      [{ path: { type: 'Exact', value: '/v1/decisions' } }, { path: { type: 'Exact', value: '/v1/systemone' } }],
      [{ path: { type: 'PathPrefix', value: '/v1' } }],
    ],
    'decisions, which the picker does not know, and all others',
  );
  const [direct, picked] = rules.map((rule) => ({ ...mapAt(rule, 'timeouts'), filters: listAt(rule, 'filters') }));
  t.strictSame(direct, picked, 'with the same filters and no timeout');
  const believed = readFileSync(join(sourceRoot, 'sidecar/access/gateway-identity.ts'), 'utf8');
  const deadline = readFileSync(join(sourceRoot, 'sidecar/api/preflight.ts'), 'utf8');
  const names = [...`${believed}${deadline}`.matchAll(/'(x-ra-[a-z-]+)'/g)].map(([, name]) => name ?? '');
  names.push('endpoint-load-metrics-format');
  const removed = listAt(rules[0], 'filters.0.requestHeaderModifier.remove').map(String);
  t.strictSame(
    [...removed].sort(),
    [...new Set(names)].sort(),
    'headers reserved for gateways and proxies are removed from callers’ requests',
  );
});

t.test(
  'with a server beside it the sidecar has its settings, and the server has the GPU and as many sequences',
  async (t) => {
    for (const server of SERVERS) {
      const [component] = documents(`${server}/kustomization.yaml`);
      t.match(at(component, 'patches.0'), { path: 'patch.yaml', target: EITHER_KIND });
      t.match(at(component, 'configMapGenerator.0'), {
        name: 'ra-sidecar',
        behavior: 'merge',
        files: ['ra-sidecar.jsonc'],
      });
      const loaded = loadConfig({ RA_CONFIG: join(FOLDER, server, 'ra-sidecar.jsonc') });
      if (loaded.kind === 'invalid') throw new Error(loaded.line);
      const [model] = loaded.config.models;
      const [own, other, ...more] = listAt(patched(server), 'spec.template.spec.containers');
      t.equal(more.length, 0);
      t.equal(mapAt(own, 'resources.limits')['nvidia.com/gpu'], undefined);
      t.equal(mapAt(other, 'resources.limits')['nvidia.com/gpu'], '1');
      t.equal(textAt(other, 'name'), server);
      t.notMatch(textAt(other, 'image'), ':', 'pinned at one place');
      const names = listAt(other, 'env').map((variable) => textAt(variable, 'name'));
      t.ok(names.includes('USER'), 'its image may have no name for the pod’s user id, which torch asks for');
      t.match(listAt(component, 'images'), [{ name: textAt(other, 'image'), digest: `sha256:${'0'.repeat(64)}` }]);
      const args = new Map(
        listAt(other, 'args').map((arg) => (typeof arg === 'string' ? arg : '').split('=') as [string, string]),
      );
      t.equal(args.get('--host'), '127.0.0.1', 'only the sidecar can reach it');
      t.match(model?.engine, { kind: server, url: `http://127.0.0.1:${args.get('--port')}` });
      t.equal(Number(args.get('--max-num-seqs') ?? args.get('--max-running-requests')), model?.seats);
      t.equal(Number(args.get('--max-model-len') ?? args.get('--context-length')), model?.contextPerSeat);
      const rest = (config: Config): object => ({ ...config, models: [] });
      t.strictSame(rest(loaded.config), rest(fileConfig()), 'everything else is unchanged');
    }
  },
);

t.test('a server beside the sidecar is stopped after it, so that running replies can finish', async (t) => {
  for (const server of SERVERS) {
    const { terminationGracePeriodSeconds, containers } = mapAt(patched(server), 'spec.template.spec');
    t.equal(terminationGracePeriodSeconds, pod['terminationGracePeriodSeconds'], 'which covers a drain');
    const [name = '', ...args] = listAt((containers as readonly Node[])[1], 'lifecycle.preStop.exec.command').map(
      String,
    );
    t.match(args.join(' '), `:-${config().operators.port}}`, 'the port without the variable');
    // In place of the sidecar, whose operators’ listener is open until the end of a drain.
    let connections = 0;
    const sidecar = createTcpServer((socket) => {
      socket.resume();
      connections += 1;
      if (connections === 2) sidecar.close();
    });
    t.teardown(() => sidecar.close());
    await once(sidecar.listen(0, '127.0.0.1'), 'listening');
    const { port } = sidecar.address() as AddressInfo;
    const hook = spawn(name, args, { env: { ...process.env, RA_OPERATORS_PORT: String(port) }, stdio: 'ignore' });
    t.strictSame(await once(hook, 'exit'), [0, null], `${server}: the hook ends`);
    t.equal(connections, 2, 'when the listener is closed, and not before');
  }
});

t.test('with several GPUs in a pod there is an engine process for each, and nothing else differs', async (t) => {
  const [component] = documents('several-gpus/kustomization.yaml');
  t.match(at(component, 'patches.0'), { path: 'patch.yaml', target: EITHER_KIND });
  t.match(at(component, 'configMapGenerator.0'), {
    name: 'ra-sidecar',
    behavior: 'merge',
    files: ['ra-sidecar.jsonc'],
  });
  const made = patched('several-gpus');
  const [own, ...more] = listAt(made, 'spec.template.spec.containers');
  t.equal(more.length, 0);
  const gpus = Number(mapAt(own, 'resources.limits')['nvidia.com/gpu']);
  t.ok(gpus > 1);
  const { models, ...rest } = fileConfig('several-gpus/ra-sidecar.jsonc');
  const { models: single, ...expected } = fileConfig();
  t.strictSame(rest, expected);
  t.strictSame(
    models,
    single.map((model) => ({ ...model, replicas: gpus })),
  );
  t.equal(at(own, 'resources.limits.memory'), at(own, 'resources.requests.memory'));
  const gib = (of: Node | undefined, path: string): number => Number(/^(\d+)Gi$/.exec(textAt(of, path))?.[1]);
  const shm = listAt(made, 'spec.template.spec.volumes').find((one) => at(one, 'name') === 'shm');
  t.equal(gib(shm, 'emptyDir.sizeLimit'), gpus * gib(volume('shm'), 'emptyDir.sizeLimit'));
  t.ok(gib(own, 'resources.limits.memory') > gib(container, 'resources.limits.memory'));
  const without = (node: Node | undefined): Node =>
    JSON.parse(JSON.stringify(node), (name, value: Node) =>
      ['resources', 'sizeLimit'].includes(name) ? undefined : value,
    ) as Node;
  t.strictSame(without(made), without(set));
});

/** The settings of one of the folder's files. */
function fileConfig(file = 'ra-sidecar.jsonc'): Config {
  const loaded = loadConfig({ RA_CONFIG: join(FOLDER, file) });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}
