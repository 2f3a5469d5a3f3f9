/** `ra-sidecar doctor`: what the sidecar would use of this machine, why, and what prevents it from serving. */
import type { LoadedConfig } from '../config/config.js';
import { EXIT, parsed, type Io } from './command.js';
import { COMMANDS } from './command-table.js';
import { engineChecks } from './engine-checks.js';
import { hostChecks, type Check } from './host-checks.js';

const SOURCE_ADVICE = 'let RA_CONFIG name the configuration file that has the models';

/** Resolves with the exit code: 1 if a check fails. */
export async function doctor(loaded: LoadedConfig, args: readonly string[], io: Io): Promise<number> {
  const { config } = loaded;
  const { values } = parsed(COMMANDS.doctor, args);
  const checks = [
    ...configurationChecks(loaded),
    ...(await hostChecks(config, io.clock)),
    ...(await engineChecks(config, io)),
  ];
  const failed = checks.filter(({ level }) => level === 'fail').length;
  io.out(values.json ? `${JSON.stringify({ ok: failed === 0, checks }, null, 2)}\n` : text(checks));
  return failed === 0 ? EXIT.done : EXIT.failed;
}

/** Where the configuration comes from, whether a sidecar starts with it, and the warnings of its own checks. */
export function configurationChecks({ hints, source, unservable }: Omit<LoadedConfig, 'config'>): Check[] {
  const what = 'configuration';
  return [
    unservable === undefined
      ? { what, level: 'ok', says: source }
      : { what, level: 'fail', says: unservable, advice: SOURCE_ADVICE },
    ...hints.map((says): Check => ({ what, level: 'warn', says })),
  ];
}

function text(checks: readonly Check[]): string {
  const width = Math.max(...checks.map(({ what }) => what.length)) + 2;
  const lines = checks.flatMap(({ what, level, says, advice }) => [
    `${level.padEnd(6)}${what.padEnd(width)}${says}`,
    ...(advice === undefined ? [] : [`${' '.repeat(6 + width)}-> ${advice}`]),
  ]);
  const count = (level: Check['level']): number => checks.filter((check) => check.level === level).length;
  return `${lines.join('\n')}\n\n${count('ok')} ok, ${count('warn')} warnings, ${count('fail')} failures\n`;
}
