/** Files of a running sidecar’s spool are removed: by an operator’s `rm`, a clean-up job, or a restored volume. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { errorOf } from '../support/error-answer.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { readAll } from '../support/usage-records.js';
import { verify } from '../../sidecar/usage/reader.js';

const ONE = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 } as const;

t.test(
  'files are removed under load: noticed within a probe, every reply is recorded, no second sidecar starts',
  async (t) => {
    const dataDir = t.testdir();
    // Three probes that find nothing wrong make it healthy again: until then a busy machine must have seen that it is not.
    const config = { ...(await chatOnly(2)), dataDir };
    const sidecar = await Sidecar.start(t, { stub: true, config });
    const dir = join(dataDir, 'usage');
    const answered: string[] = [];
    let over = false;
    const caller = async (): Promise<void> => {
      while (!over) {
        const reply = await sidecar.chat(ONE);
        await reply.text();
        if (reply.status === 200) answered.push(reply.headers.get('x-request-id') ?? '');
        else if (reply.status === 503) await sidecar.logged('usage spool healthy');
        else throw new Error(`answered with ${reply.status}`);
      }
    };
    const callers = Promise.all([caller(), caller()]);
    await sidecar.until(() => sidecar.lines.filter(({ event }) => event === 'request').length > 20, 'requests');

    for (const name of readdirSync(dir).filter((name) => name.endsWith('.seg') || name === 'lock'))
      rmSync(join(dir, name));
    const second = await Sidecar.launch(t, {
      stub: true,
      config: { ...config, listen: { host: '127.0.0.1', port: 0 } },
    });
    const removed = await sidecar.logged('usage spool: a segment was removed');
    t.match(removed, { level: 50, outcome: 'restored', file: join(dir, '00000000000000000001.seg') });
    t.ok(Number(removed['bytes']) > 0);
    t.match(await sidecar.logged('usage spool: its lock was removed'), { level: 50, file: join(dir, 'lock') });
    t.match(await sidecar.readyz(sidecar.operatorsPort), {
      status: 503,
      body: { reasons: ['spool_unhealthy: removed'] },
    });
    t.equal(errorOf({ body: await (await sidecar.chat(ONE)).text() }).code, 'spool_unhealthy');
    t.equal(await sidecar.metric('ra_sidecar_spool_files_removed_total'), 2);

    t.not((await second.exited()).code, 0);
    t.match(second.printed, `is written by process ${sidecar.pid}`);

    await sidecar.logged('usage spool healthy');
    const then = answered.length;
    await sidecar.until(() => answered.length > then + 5, 'replies');
    over = true;
    await callers;
    sidecar.child.kill('SIGTERM');
    t.equal((await sidecar.exited()).code, 0);
    const { records, damage } = await readAll(dir);
    t.strictSame(damage, []);
    const closed = records.filter(({ kind }) => kind === 'close').map(({ requestId }) => requestId);
    t.strictSame(closed.sort(), answered.sort(), 'one close for each reply');
    t.strictSame((await verify(dir, false)).findings, []);
  },
);
