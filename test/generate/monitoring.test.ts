/** The files of deploy/ for Grafana and Prometheus use metrics that exist. promtool runs the rules in `make e2e`. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { alertRules, withAlerts } from './alert-docs.js';
import { dashboard } from './dashboard.js';
import { LABELS } from './metric-docs.js';
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import { readPages } from '../docs/pages.js';
import { knownSeries, unknownIn } from '../support/promql.js';
import { sourceRoot } from '../support/source-root.js';

interface Board {
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly type: string;
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    readonly targets?: readonly { readonly refId: string; readonly expr: string }[];
  }[];
}

const known = await knownSeries();
const board = JSON.parse(dashboard()) as Board;
const alerts = readFileSync(`${sourceRoot}/deploy/prometheus/alerts.yml`, 'utf8');
const rules = alertRules();
const expressions = board.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));

t.test('deploy/grafana/ra-sidecar.json equals what the code generates (`make docs` writes it)', async (t) => {
  t.equal(readFileSync(`${sourceRoot}/deploy/grafana/ra-sidecar.json`, 'utf8'), dashboard());
});

t.test('docs/incidents.md lists every alert (`make docs` writes the list)', async (t) => {
  const page = readFileSync(`${sourceRoot}/docs/incidents.md`, 'utf8');
  t.equal(page, withAlerts(page));
  for (const rule of rules) t.ok(page.includes(`\n- \`${rule.slice(0, rule.indexOf('\n'))}\`: `), rule);
});

t.test('every panel uses existing metrics and labels', async (t) => {
  t.ok(expressions.length > 40);
  for (const { title, expr } of expressions) t.strictSame(unknownIn(expr, known), [], `${title}: ${expr}`);
});

t.test('panels do not overlap, and each has its own id', async (t) => {
  const { panels } = board;
  t.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, i) => `${x + (i % w)} ${y + Math.floor(i / w)}`),
  );
  t.equal(new Set(cells).size, cells.length, 'none covers another');
  t.ok(panels.every(({ gridPos: { x, w } }) => x + w <= 24));
});

t.test('every rule uses existing metrics, and names an existing page and heading', async (t) => {
  const pages = new Map(readPages().map(({ path, anchors }) => [path, anchors]));
  t.ok(rules.length > 15);
  for (const rule of rules) {
    const name = rule.slice(0, rule.indexOf('\n'));
    const expr = /^ {8}expr: (.*?)^ {8}(?:for|labels):/ms.exec(rule)?.[1] ?? '';
    t.not(expr.trim(), '', name);
    t.strictSame(unknownIn(expr, known), [], name);
    t.match(rule, /severity: (critical|warning)/, name);
    const [page = 'none', anchor] = (/runbook: (\S+)/.exec(rule)?.[1] ?? '').split('#');
    const anchors = pages.get(page);
    t.ok(anchors !== undefined && (anchor === undefined || anchors.has(anchor)), `${name}: ${page}#${anchor ?? ''}`);
  }
});

t.test('metrics whose names other services have too are limited to this job', async (t) => {
  const shared = /\b((?:gen_ai|http_server|nodejs|process)_\w+)(?:\{([^}]*)\})?/g;
  const found = [...expressions.map(({ expr }) => expr), alerts]
    .flatMap((text) => [...text.matchAll(shared)])
    .filter(([, name = '']) => !(name in LABELS));
  t.ok(found.length > 20);
  for (const [text, , where = ''] of found) t.match(where, 'job="ra-sidecar"', text);
});

t.test('every metric that can show a fault is on the dashboard or in a rule', async (t) => {
  const shown = [...expressions.map(({ expr }) => expr), alerts].join('\n');
  const absent = new Metrics([]).definitions.map(({ name }) => name).filter((name) => !shown.includes(name));
  // Covered by others: configured values, logged faults, causes of what is shown.
  t.strictSame(absent, [
    'ra_sidecar_drafted_tokens_total',
    'ra_sidecar_accepted_tokens_total',
    'ra_sidecar_seats_kept',
    'ra_sidecar_session_turns',
    'ra_sidecar_session_keeps',
    'ra_sidecar_seats_lent',
    'ra_sidecar_lent_waiting_requests',
    'ra_sidecar_lent_seats_ended',
    'ra_sidecar_lent_seat_seconds',
    'ra_sidecar_queue_wait_error_seconds',
    'ra_sidecar_account_seat_seconds',
    // The sum of what each model's metric shows.
    'ra_sidecar_endpoint_waiting_requests',
    'ra_sidecar_endpoint_running_requests',
    'ra_sidecar_endpoint_kv_usage_ratio',
    'ra_sidecar_endpoint_seat_usage_ratio',
    'ra_sidecar_endpoint_cache_info',
    // Their sums over a model's replicas are shown.
    'ra_sidecar_replica_seats',
    'ra_sidecar_replica_seats_busy',
    // What the queue places by; the time between tokens is shown.
    'ra_sidecar_replica_token_time_ratio',
    // Whether the file is valid now is in a rule.
    'ra_sidecar_keys_reload_failures_total',
    'ra_sidecar_authorizer_stale_total',
    'ra_sidecar_credit_reservations',
    'ra_sidecar_usage_records_total',
    'ra_sidecar_spool_progress_dropped_total',
    'ra_sidecar_usage_delivery_last_success_timestamp_seconds',
    'ra_sidecar_build_info',
  ]);
});
