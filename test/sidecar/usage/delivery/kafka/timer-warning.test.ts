import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';

const MODULE = new URL('../../../../../sidecar/usage/delivery/kafka/timer-warning.js', import.meta.url).href;

/** In a separate process, since warnings belong to the process. Returns its output. */
async function printed(silence: boolean): Promise<string> {
  const program = `
    import { silenceTimerWarning } from '${MODULE}';
    ${silence ? 'silenceTimerWarning(); silenceTimerWarning();' : ''}
    const warn = (name, stack) => process.emitWarning(Object.assign(new Error(name + ' printed'), { name, stack }));
    warn('TimeoutNegativeWarning', 'at x (/app/node_modules/kafkajs/src/network/requestQueue/index.js:317:37)');
    warn('TimeoutNegativeWarning', 'at of ours (/app/dist/sidecar/cli.js:1:1)');
    warn('OtherWarning', 'at other (/app/node_modules/kafkajs/index.js:1:1)');`;
  const { stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program]);
  return stderr;
}

t.test('of all warnings only KafkaJS’ negative timer is not printed', async (t) => {
  t.equal((await printed(false)).match(/TimeoutNegativeWarning printed/g)?.length, 2);
  const rest = await printed(true);
  t.equal(rest.match(/TimeoutNegativeWarning printed/g)?.length, 1);
  t.match(rest, /OtherWarning/);
});
