import { readFileSync } from 'node:fs';
import t from 'tap';
import { httpCheck, nodeCheck, swapCheck } from '../../../sidecar/commands/runtime-checks.js';

t.test('Node’s version against the package’s engines', async (t) => {
  for (const version of ['22.13.0', '22.23.3', '24.0.0', '24.21.0', '26.10.0'])
    t.match(nodeCheck(version), { level: 'ok' }, version);
  for (const version of ['18.20.0', '20.18.9', '22.12.0', '23.1.0', '25.0.0', '27.1.0']) {
    t.match(
      nodeCheck(version),
      { level: 'fail', advice: /20\.19 or newer 20, or 22\.13 .*, or 24\.0 .*, or 26\.0/ },
      version,
    );
  }
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as { engines: { node: string } };
  t.equal(engines.node, '^20.19.0 || ^22.13.0 || ^24.0.0 || ^26.0.0');
});

t.test('Node 20 is a warning: it gets no security updates', async (t) => {
  for (const version of ['20.19.0', '20.20.2'])
    t.match(nodeCheck(version), { level: 'warn', advice: /Node 24/ }, version);
});

t.test('the HTTP library loads', async (t) => {
  t.strictSame(await httpCheck(), { what: 'HTTP library', level: 'ok', says: 'uWebSockets.js loads' });
});

t.test('swap is a warning, unless the control group has none', async (t) => {
  const head = 'Filename\tType\tSize\tUsed\tPriority\n';
  t.match(swapCheck('', undefined), { level: 'ok' });
  t.strictSame(swapCheck(head, undefined), { what: 'swap', level: 'ok', says: 'none' });
  const device = `${head}/dev/sda2\tpartition\t1\t0\t-2\n`;
  t.match(swapCheck(device, undefined), { level: 'warn', advice: /MemorySwapMax=0/ });
  t.match(swapCheck(device, 'max\n'), { level: 'warn' });
  t.match(swapCheck(device, '0\n'), { level: 'ok' });
});
