import t from 'tap';
import { configurationChecks } from '../../../sidecar/commands/doctor.js';

t.test('which configuration is in force, and one with which no sidecar starts', async (t) => {
  const found = { kind: 'config', hints: ['a is not used'], source: '/etc/ra.jsonc' } as const;
  t.strictSame(configurationChecks(found), [
    { what: 'configuration', level: 'ok', says: '/etc/ra.jsonc' },
    { what: 'configuration', level: 'warn', says: 'a is not used' },
  ]);
  t.match(configurationChecks({ ...found, unservable: 'config: models must be set' })[0], {
    level: 'fail',
    says: 'config: models must be set',
    advice: /RA_CONFIG/,
  });
});
