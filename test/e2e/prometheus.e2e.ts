/** The metrics page, the alert rules and the dashboard with Debian’s Prometheus. */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { dashboard } from '../generate/dashboard.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';
import { Prometheus, promtool } from './prometheus.js';

const ALERTS = 'deploy/prometheus/alerts.yml';
const ALERT_TESTS = 'test/e2e/alerts.test.yml';

/** Panels that have no data for an idle, healthy sidecar with its own keys. */
const EMPTY = new Set(['Fairness', 'Authorizer', 'Patience of callers']);

t.test('the rules and the example configuration are valid', async (t) => {
  for (const args of [
    ['check', 'rules', ALERTS],
    ['check', 'config', 'deploy/prometheus/prometheus.yml'],
  ]) {
    const { ok, said } = await promtool(args);
    t.ok(ok, args.join(' '), { said });
  }
});

t.test('each rule fires when it should, and only then', async (t) => {
  const { ok, said } = await promtool(['test', 'rules', ALERT_TESTS]);
  t.ok(ok, 'promtool test rules', { said });
  const named = (file: string, pattern: RegExp): string[] =>
    [...readFileSync(`${sourceRoot}/${file}`, 'utf8').matchAll(pattern)].map(([, name = '']) => name);
  t.strictSame(named(ALERT_TESTS, /^ {2}- name: (\S+)/gm), named(ALERTS, /^ {6}- alert: (\S+)/gm), 'none is left out');
});

t.test('a running sidecar as Prometheus sees it', async (t) => {
  const sidecar = await Sidecar.start(t, { seats: 2 });
  const serve = async (): Promise<void> => {
    const messages = [{ role: 'user', content: 'Hello.' }];
    // Long enough for several messages of tokens, whose pauses are measured, whatever the model would say.
    const long = { max_tokens: 64, temperature: 0, frequency_penalty: -2 };
    await (await sidecar.chat({ messages, stream: true, ...long })).text();
    await (await sidecar.chat({ messages, max_tokens: 100_000 })).text();
    const questions = [{ id: 'a', type: 'yes_no', question: 'Is it wet?' }];
    await (await sidecar.post('/decisions', { model: DECIDE, input: 'It rains.', questions })).text();
  };
  await serve();

  await t.test('its page passes promtool’s rules for names and units', async (t) => {
    const page = await (await fetch(`http://127.0.0.1:${sidecar.operatorsPort}/metrics`)).text();
    // The process metrics are prom-client’s, of which some do not follow Prometheus’ conventions.
    const ours = page.split('\n').filter((line) => !/^(# (HELP|TYPE) )?(nodejs|process)_/.test(line));
    const { ok, said } = await promtool(['check', 'metrics'], `${ours.join('\n')}\n`);
    t.ok(ok, 'promtool check metrics', { said });
    t.equal(said.trim(), '');
  });

  const prometheus = await Prometheus.start(t, `127.0.0.1:${sidecar.operatorsPort}`);
  await serve();
  await prometheus.scraped(5);

  await t.test('every panel of the dashboard has data', async (t) => {
    const { panels } = JSON.parse(dashboard()) as {
      panels: { title: string; targets?: { expr: string; legendFormat: string }[] }[];
    };
    for (const { title, targets = [] } of panels) {
      for (const { expr, legendFormat } of targets) {
        const asked = expr.replaceAll(/\$(instance|model)/g, '.*').replaceAll('$__rate_interval', '1m');
        const found = await prometheus.query(asked);
        const drawn = found.some(({ value }) => Number.isFinite(Number(value[1])));
        t.equal(drawn, !EMPTY.has(title), `${title}: ${asked}`);
        const labels = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
        const present = new Set(found.flatMap(({ metric }) => Object.keys(metric)));
        if (found.length > 0)
          t.ok(
            labels.every((label) => present.has(label)),
            `${title}: ${legendFormat}`,
          );
      }
    }
  });

  await t.test('a quantile is of the requests that were sent', async (t) => {
    const about = `gen_ai_request_model="${CHAT}"`;
    const count = (name: string, more = ''): Promise<number> => total(prometheus, `${name}_count{${about}${more}}`);
    t.equal(await count('gen_ai_server_time_to_first_token_seconds'), 2);
    t.equal(await count('gen_ai_server_request_duration_seconds', ',error_type="bad_request"'), 2);
    t.ok((await total(prometheus, `gen_ai_client_token_usage_sum{${about},gen_ai_token_type="output"}`)) > 2);
    t.ok((await total(prometheus, `ra_sidecar_kv_tokens{model="${CHAT}",use="kept"}`)) > 0, 'prompts are kept');
  });

  await t.test('no alert fires', async (t) => {
    const rules = await prometheus.rules();
    t.ok(rules.length > 15);
    t.strictSame(
      rules.filter(({ health, state }) => health !== 'ok' || state === 'firing').map(({ name }) => name),
      [],
    );
  });
});

async function total(prometheus: Prometheus, selector: string): Promise<number> {
  const [found] = await prometheus.query(`sum(${selector})`);
  return Number(found?.value[1] ?? 0);
}
