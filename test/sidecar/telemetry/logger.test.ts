import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { openLog, type LogFields, type LogLevel } from '../../../sidecar/telemetry/logger.js';

const CANARY = 'the-prompt-of-a-caller';

function capture(level: LogLevel = 'debug') {
  const lines: Record<string, unknown>[] = [];
  const { log } = openLog(level, { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) });
  return { log, lines };
}

t.test('a line has an event, its time, and the given fields', async (t) => {
  const { log, lines } = capture();
  log.info('engine ready', { model: 'm', durationMs: 12.5 });
  t.match(lines, [{ event: 'engine ready', level: 30, model: 'm', durationMs: 12.5, time: /^\d{4}-.*Z$/ }]);
  t.strictSame(Object.keys(lines[0]!).sort(), ['durationMs', 'event', 'level', 'model', 'time']);
});

t.test('levels', async (t) => {
  const { log, lines } = capture('warn');
  log.debug('a');
  log.info('b');
  log.warn('c');
  log.error('d');
  t.match(lines, [{ event: 'c' }, { event: 'd' }]);
  t.equal(lines.length, 2);
});

t.test('every line of a request carries its id, and no other does', async (t) => {
  const { log, lines } = capture();
  const request = log.forRequest('req-1');
  request.info('answered');
  request.error('failed');
  log.info('elsewhere');
  t.strictSame(
    lines.map(({ requestId }) => requestId),
    ['req-1', 'req-1', undefined],
  );
});

t.test('fields that are not in the list are dropped', async (t) => {
  const { log, lines } = capture();
  const foreign: object = { model: 'm', prompt: CANARY, headers: { authorization: CANARY }, constructor: CANARY };
  log.info('answered', foreign);
  log.info('answered', { reason: { deep: CANARY } } as unknown as LogFields);
  t.notMatch(JSON.stringify(lines), CANARY);
  t.equal(lines[0]!['model'], 'm');
});

t.test('keys and credentials are redacted in texts', async (t) => {
  const { log, lines } = capture();
  const key = `ra-dev-${'x'.repeat(43)}`;
  log.forRequest(key).warn('denied', { reason: `got Bearer ${CANARY} and ${key}, sorry` });
  t.match(lines, [{ requestId: '[redacted]', reason: 'got [redacted] and [redacted], sorry' }]);
});

t.test('texts are cut', async (t) => {
  const { log, lines } = capture();
  log.warn('denied', { reason: 'x'.repeat(10_000) });
  t.equal((lines[0]!['reason'] as string).length, 257);
});

t.test('an error keeps its place, and loses its message, which may quote content', async (t) => {
  const { log, lines } = capture();
  let thrown: unknown;
  try {
    JSON.parse(`${CANARY}\n    at ${CANARY}`);
  } catch (error) {
    thrown = error;
  }
  t.match((thrown as Error).message, 'the-prompt', 'the parser does quote its input');
  log.error('fault', { fault: thrown });
  log.error('fault', { fault: new Error(`${CANARY}\n    at ${CANARY}`, { cause: new Error(CANARY) }) });
  log.error('fault', { fault: CANARY });
  log.error('fault', { fault: { message: CANARY } });
  const renamed = new Error(`${CANARY}\n    at ${CANARY}`);
  renamed.message = 'said otherwise later';
  log.error('fault', { fault: renamed });
  t.notMatch(JSON.stringify(lines), /the-prompt/);
  t.match(lines, [
    { fault: { name: 'SyntaxError', stack: [/^at JSON\.parse/, /logger\.test/] } },
    { fault: { name: 'Error', stack: [/logger\.test/] } },
    { fault: { name: 'string' } },
    { fault: { name: 'object' } },
    { fault: { name: 'Error' } },
  ]);
});

t.test('a failed system call keeps its message', async (t) => {
  const { log, lines } = capture();
  const fault = Object.assign(new Error('ENOENT: no such file'), { code: 'ENOENT', syscall: 'open' });
  log.error('fault', { fault });
  t.match(lines, [{ fault: { name: 'Error', code: 'ENOENT', message: 'ENOENT: no such file' } }]);
});

t.test('an error of a child process is written as that process described it', async (t) => {
  const { log, lines } = capture();
  const fault = { name: 'RangeError', stack: ['at render (template.js:1:1)'] };
  log.error('fault', { childFault: fault });
  t.strictSame(lines[0]?.['fault'], fault);
  t.notOk('childFault' in lines[0]!);
});

t.test('on stdout: lines written just before the log is closed are there, and later ones are dropped', async (t) => {
  const logger = new URL('../../../sidecar/telemetry/logger.js', import.meta.url).href;
  const program = `
    const { openLog } = await import(${JSON.stringify(logger)});
    const { log, close } = openLog('info');
    for (let count = 0; count < 2000; count++) log.info('line', { count });
    log.info('last');
    await close();
    log.info('too late');
    process.exit(3);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const output = await text(child.stdout);
  await exited;
  const lines = output.trimEnd().split('\n');
  t.equal(child.exitCode, 3);
  t.equal(lines.length, 2001);
  t.match(JSON.parse(lines.at(-1)!), { event: 'last' });
});

t.test('on stdout: lines of one turn are one write, and an exit without close loses none', async (t) => {
  const logger = new URL('../../../sidecar/telemetry/logger.js', import.meta.url).href;
  const program = `
    import fs from 'node:fs';
    const { write } = fs;
    let [writes, lines] = [0, 0];
    fs.write = (file, text, ...more) => {
      writes += 1;
      const ended = more.pop();
      // Until it has ended, an exit may write what comes later first.
      return write(file, text, ...more, (...how) => {
        lines += text.split('\\n').length - 1;
        ended(...how);
      });
    };
    const { openLog } = await import(${JSON.stringify(logger)});
    const { log } = openLog('info');
    for (let count = 0; count < 20; count++) log.forRequest('r').info('line', { count });
    setInterval(() => {
      if (lines < 20) return;
      log.info('last', { count: writes });
      process.exit(3);
    }, 1);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const lines = (await text(child.stdout)).trimEnd().split('\n');
  await exited;
  t.equal(child.exitCode, 3);
  t.equal(lines.length, 21);
  t.match(JSON.parse(lines.at(-1)!), { event: 'last', count: 1 });
});

t.test('on stdout: a closed reader does not keep the process running', async (t) => {
  const logger = new URL('../../../sidecar/telemetry/logger.js', import.meta.url).href;
  const program = `
    const { openLog } = await import(${JSON.stringify(logger)});
    const { log, close } = openLog('info');
    process.stdin.once('data', async () => {
      for (let count = 0; count < 9; count++) log.info('nobody reads this', { count });
      await close();
      process.exit(3);
    });
    process.stderr.write('up');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['pipe', 'pipe', 'pipe'] });
  const exited = once(child, 'exit');
  await once(child.stderr, 'data');
  child.stdout.destroy();
  await once(child.stdout, 'close');
  child.stdin.write('go');
  await exited;
  t.equal(child.exitCode, 3);
});
