/** deploy/systemd/ra-sidecar.service, parsed as systemd does. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sourceRoot } from '../support/source-root.js';

export const UNIT = join(sourceRoot, 'deploy/systemd/ra-sidecar.service');

/** Where the unit expects the package. */
export const INSTALLED = '/opt/ra-sidecar';

/** How systemd expands specifiers for a unit of this name (systemd.unit(5)). */
function specifiers(name: string): Readonly<Record<string, string>> {
  return { '%N': name, '%t': '/run', '%S': '/var/lib', '%E': '/etc' };
}

/** Values of each key of a unit called `name`, in order, with specifiers expanded. */
export function unit(name: string): ReadonlyMap<string, readonly string[]> {
  const values = new Map<string, string[]>();
  for (const line of readFileSync(UNIT, 'utf8').split('\n')) {
    const [, key, value] = /^([A-Za-z]+)=(.*)$/.exec(line) ?? [];
    if (key === undefined || value === undefined) continue;
    const text = Object.entries(specifiers(name)).reduce((known, [from, to]) => known.replaceAll(from, to), value);
    values.set(key, [...(values.get(key) ?? []), text]);
  }
  return values;
}

/** `90s`, `15min` as ms. Throws for units that this file does not use. */
export function span(text: string | undefined): number {
  const [, count, scale] = /^(\d+)(s|min)$/.exec(text ?? '') ?? [];
  if (count === undefined) throw new Error(`no span of time: ${String(text)}`);
  return Number(count) * (scale === 'min' ? 60_000 : 1000);
}
