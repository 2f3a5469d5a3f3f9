/** The console’s page while an engine, a prompt host, the disk or callers fail, in Debian’s Chromium. */
import { execFileSync } from 'node:child_process';
import t from 'tap';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { ENGINE, killChild, SHORT_LANE, ProcessGate } from '../support/process-gate.js';
import { Tab } from './cdp.js';

const DESK = { width: 1280, height: 900 };
const ONE = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 } as const;

/** The largest file that the sidecar may write while its disk is full: less than a record. */
const LIMIT_BYTES = 64;
/** More requests than fit into one block of the spool. */
const MAX_ANSWERED = 50;

/** The text of a cell, counted from the row’s name; empty if there is no such row. */
function cell(table: string, row: string, at: number): string {
  return `([...document.querySelectorAll('[aria-label="${table}"] tbody tr')]
    .find((row) => row.cells[0].textContent === '${row}')?.cells[${at}].textContent ?? '')`;
}

const text = (id: string): string => `document.getElementById('${id}').textContent`;

t.test('failures on the page', async (t) => {
  const usage = { minFreeBytes: 0, closeWaitMs: 1000, maxBacklogBytes: 1 << 30 };
  const gate = new ProcessGate(t);
  const { environment } = gate;
  const sidecar = await Sidecar.start(t, {
    environment,
    config: { ...(await chatOnly(2)), usage, console: { intervalMs: 250 } },
  });
  const tab = await Tab.open(t, DESK);
  await tab.goto(`http://127.0.0.1:${sidecar.operatorsPort}/console`);
  await tab.until(`${text('state')} === 'ready'`);

  await t.test('an engine that ended: starting, then ready, and one restart', async (t) => {
    const [state, restarts] = [cell('Engines', CHAT, 1), cell('Engines', CHAT, 2)];
    await tab.until(`${state} === 'ready' && ${restarts} === '0'`);
    gate.close(ENGINE);
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    const { goOn } = await gate.stopped();
    await tab.until(`/^cold, ready in .+/.test(${state}) && ${restarts} === '1'`);
    t.equal(await tab.value(text('state')), 'starting');
    t.equal(await tab.value(text('news')), `Sidecar starting, engine of ${CHAT} cold`, 'screen readers are reported');
    goOn();
    await tab.until(`${state} === 'ready' && ${text('state')} === 'ready'`);
    t.equal(await tab.value(restarts), String(await sidecar.metric('ra_sidecar_engine_restarts_total')));
  });

  await t.test('a prompt host that ended', async (t) => {
    const [state, restarts] = [cell('Prompt hosts', 'short', 1), cell('Prompt hosts', 'short', 4)];
    await tab.until(`${state} === 'up' && ${restarts} === '0'`);
    gate.close(SHORT_LANE);
    killChild(sidecar.pid, SHORT_LANE);
    const { goOn } = await gate.stopped();
    await tab.until(`${state} === 'starting' && ${restarts} === '1'`);
    goOn();
    await tab.until(`${state} === 'up'`);
    t.equal(await tab.value(restarts), String(await sidecar.metric('ra_sidecar_prompt_host_restarts_total')));
    t.equal(await tab.value(cell('Prompt hosts', 'long', 4)), '0');
  });

  await t.test('answers with errors, by code', async (t) => {
    const none = `document.querySelector('[aria-label="Errors by code"] p')`;
    await tab.until(`${none}?.textContent === 'none so far' && !${none}.hidden`);
    for (let i = 0; i < 3; i += 1) await (await sidecar.chat({ ...ONE, model: 'other' })).text();
    for (let i = 0; i < 2; i += 1) await (await sidecar.chat({})).text();
    await (await sidecar.post('/chat/completions', ONE, { key: 'nobody' })).text();
    for (const [code, times] of Object.entries({ model_not_entitled: 3, bad_request: 2, invalid_api_key: 1 })) {
      const labels = { http_request_method: 'POST', error_type: code };
      t.equal(await sidecar.metric('http_server_request_duration_seconds_count', labels), times, code);
      for (const at of [1, 2]) await tab.until(`${cell('Errors by code', code, at)} === '${times}'`);
    }
    t.equal(await tab.value(`${none}.hidden`), true);
  });

  await t.test('a disk that is full, and then has room', async (t) => {
    const health = `[...document.querySelectorAll('[aria-label="Usage spool"] dt')]
      .find((name) => name.textContent === 'Health').nextElementSibling`;
    await tab.until(`${health}.textContent === 'healthy'`);
    const limit = (bytes: string): void =>
      void execFileSync('prlimit', ['--pid', String(sidecar.pid), `--fsize=${bytes}:`]);
    limit(String(LIMIT_BYTES));
    let refused = await sidecar.chat(ONE);
    for (let i = 0; refused.status === 200 && i < MAX_ANSWERED; i += 1) {
      await refused.text();
      refused = await sidecar.chat(ONE);
    }
    await refused.text();
    t.equal(refused.status, 503);
    await tab.until(`/^unhealthy: (write|late|space)$/.test(${health}.textContent)`);
    t.equal(await tab.value(`${health}.dataset.tone`), 'bad');
    t.equal(await tab.value(text('state')), 'unhealthy');
    t.match(await tab.value(text('reasons')), /^spool_unhealthy: /);
    limit('unlimited');
    await tab.until(`${health}.textContent === 'healthy' && ${text('state')} === 'ready'`);
  });

  t.strictSame(tab.complaints, []);
});
