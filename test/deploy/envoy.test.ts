/**
 * Reads deploy/envoy/envoy.yaml, without an Envoy. Its names and values were compared with Envoy’s definitions
 * (docs/kubernetes.md); these tests find mistakes that Envoy would accept.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import t from 'tap';
import { loadConfig } from '../../sidecar/config/config.js';
import { BODY_MS } from '../../sidecar/http/server.js';
import { sourceRoot } from '../support/source-root.js';
import { at, FOLDER, listAt, manifest, mapAt, SERVERS, textAt, type Node } from './manifests.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');
const envoy = parseYaml(read('deploy/envoy/envoy.yaml')) as Node;
const manager = mapAt(envoy, 'static_resources.listeners.0.filter_chains.0.filters.0.typed_config');
const host = mapAt(manager, 'route_config.virtual_hosts.0');
const [api, others] = listAt(host, 'routes');
const cluster = mapAt(envoy, 'static_resources.clusters.0');
const upstream = mapAt(cluster, 'typed_extension_protocol_options')[
  'envoy.extensions.upstreams.http.v3.HttpProtocolOptions'
];

/** `1.5s` in ms. */
function ms(duration: string): number {
  const [, seconds] = /^(\d+(?:\.\d+)?)s$/.exec(duration) ?? [];
  return Number(seconds) * 1000;
}

t.test('streams are forwarded without a time limit, with their trailers', async (t) => {
  t.equal(at(api, 'route.timeout'), '0s', 'no time limit for a stream');
  t.ok(ms(textAt(api, 'route.idle_timeout')) >= 3_600_000, 'a whole answer sends nothing before it is complete');
  t.strictSame(
    listAt(manager, 'http_filters').map((filter) => at(filter, 'name')),
    ['envoy.filters.http.router'],
    'no filter that buffers',
  );
  t.equal(at(manager, 'http_protocol_options.enable_trailers'), true, 'to callers');
  t.equal(at(upstream, 'explicit_http_config.http_protocol_options.enable_trailers'), true, 'from sidecars');
  t.equal(ms(textAt(manager, 'request_timeout')), BODY_MS, 'a body has as much time as the sidecar gives it');
});

t.test('only requests that never ran are retried', async (t) => {
  const policy = mapAt(api, 'route.retry_policy');
  t.strictSame(textAt(policy, 'retry_on').split(',').sort(), ['connect-failure', 'retriable-status-codes']);
  t.strictSame(listAt(policy, 'retriable_status_codes'), [503]);
  t.equal(
    at(policy, 'retry_host_predicate.0.name'),
    'envoy.retry_host_predicates.previous_hosts',
    'on another sidecar',
  );
  t.equal(at(host, 'retry_policy'), undefined, 'no other retry policy applies');
  const mappers = listAt(manager, 'local_reply_config.mappers');
  const statusOf = (flag: string): Node | undefined =>
    at(
      mappers.find((mapper) => listAt(mapper, 'filter.response_flag_filter.flags').includes(flag)),
      'status_code',
    );
  for (const flag of ['UC', 'UR', 'LR', 'UPE']) t.equal(statusOf(flag), 502, `${flag}: the request may have run`);
  for (const flag of ['UF', 'UH', 'UO']) t.equal(statusOf(flag), 503, `${flag}: the request never reached a sidecar`);
  t.equal(statusOf('UT'), 504);
});

t.test('every request that the sidecars hold can be retried at once', async (t) => {
  const [thresholds, ...more] = listAt(cluster, 'circuit_breakers.thresholds');
  t.strictSame(more, [], 'one priority');
  const pods = Number(at(manifest('ScaledObject'), 'spec.maxReplicaCount'));
  const held = ['.', 'several-gpus', ...SERVERS].map((folder) => {
    const loaded = loadConfig({ RA_CONFIG: join(FOLDER, folder, 'ra-sidecar.jsonc') });
    if (loaded.kind === 'invalid') throw new Error(loaded.line);
    const { models, queue } = loaded.config;
    const seats = models.reduce((sum, model) => sum + model.seats * Number(model.replicas), 0);
    return pods * seats * (1 + queue.waitingPerSeat);
  });
  for (const bound of ['max_connections', 'max_pending_requests', 'max_requests', 'max_retries'])
    t.ok(Number(at(thresholds, bound)) >= Math.max(...held), bound);
});

t.test('its own answers have the API’s form and the text of HAProxy’s', async (t) => {
  const haproxy = read('deploy/haproxy/haproxy.cfg');
  const bodies = [
    ...listAt(manager, 'local_reply_config.mappers').map((mapper) => {
      t.equal(at(mapper, 'body_format_override.content_type'), 'application/json');
      return textAt(mapper, 'body_format_override.text_format_source.inline_string');
    }),
    textAt(others, 'direct_response.body.inline_string'),
  ];
  for (const body of bodies) {
    t.strictSame(Object.keys((JSON.parse(body) as { error: object }).error), ['message', 'type', 'code', 'param']);
    t.ok(haproxy.includes(body), body);
  }
});

t.test('callers reach the API only, and cannot send headers reserved for gateways', async (t) => {
  t.strictSame([at(api, 'match.prefix'), at(others, 'match.prefix')], ['/v1/', '/']);
  t.equal(at(others, 'direct_response.status'), 404);
  const route = parseYaml(readFileSync(join(FOLDER, 'inference/httproute.yaml'), 'utf8')) as Node;
  const removed = listAt(route, 'spec.rules.0.filters.0.requestHeaderModifier.remove');
  t.strictSame(
    listAt(host, 'request_headers_to_remove'),
    removed.filter((name) => typeof name === 'string' && name.startsWith('x-ra-')),
  );
});

t.test('it requests load reports, uses them and forwards them', async (t) => {
  const [asked] = listAt(host, 'request_headers_to_add');
  t.match(asked, {
    header: { key: 'endpoint-load-metrics-format', value: 'json' },
    append_action: 'OVERWRITE_IF_EXISTS_OR_ADD',
  });
  t.strictSame(listAt(host, 'response_headers_to_remove'), ['endpoint-load-metrics']);
  const policy = mapAt(cluster, 'load_balancing_policy.policies.0.typed_extension_config');
  t.equal(policy['name'], 'envoy.load_balancing_policies.client_side_weighted_round_robin');
  t.equal(at(policy, 'typed_config.enable_oob_load_report'), false);
});

t.test('it sends to all ready sidecars and no others, and uses no connection that is being closed', async (t) => {
  t.equal(at(api, 'route.cluster'), cluster['name']);
  t.equal(at(cluster, 'load_assignment.cluster_name'), cluster['name']);
  const address = mapAt(cluster, 'load_assignment.endpoints.0.lb_endpoints.0.endpoint.address.socket_address');
  t.strictSame(address, { address: 'ra-sidecar-each.ra-sidecar.svc.cluster.local', port_value: 8080 });
  const check = mapAt(cluster, 'health_checks.0');
  t.equal(at(check, 'http_health_check.path'), '/readyz');
  t.equal(check['interval'], check['no_traffic_interval'], 'also without requests');
  t.equal(at(cluster, 'common_lb_config.healthy_panic_threshold.value'), 0);
  t.ok(ms(textAt(upstream, 'common_http_protocol_options.idle_timeout')) < 10_000, 'before the sidecar does');
});
