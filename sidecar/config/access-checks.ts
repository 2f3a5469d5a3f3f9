import { limitsSection } from './keys-schema.js';
import { isLoopback } from './loopback.js';
import { settings } from './settings.js';
import type { Config } from './types.js';

/** Longest path in Linux's `sun_path` without its final zero, in bytes. */
const SOCKET_PATH_BYTES = 107;

/** Rules between the settings of listeners and access; see `contradictions` in checks.ts. */
export function accessContradictions({ listen, access, gateway, authorizer }: Config): string[] {
  const broken: string[] = [];
  if (!listen.tcp && listen.socket === undefined) broken.push('listen.tcp must be true unless listen.socket is set');
  for (const [path, socket] of [
    ['listen.socket', listen.socket],
    ['authorizer.socket', authorizer.socket],
  ] as const) {
    if (socket !== undefined && Buffer.byteLength(socket) > SOCKET_PATH_BYTES)
      broken.push(`${path} must have at most ${SOCKET_PATH_BYTES} bytes as an absolute path`);
  }
  if (access.mode === 'gateway' && gateway.secretFile === undefined)
    broken.push('gateway.secretFile must be set where access.mode is gateway');
  if (access.mode === 'authorizer' && authorizer.url === undefined)
    broken.push('authorizer.url must be set where access.mode is authorizer');
  const url = authorizer.url === undefined ? undefined : urlProblem(authorizer.url, authorizer.socket !== undefined);
  return url === undefined ? broken : [...broken, url];
}

/** Settings of access that have no effect with `access.mode`; see `hints` in checks.ts. */
export function accessHints({ access: { mode }, authorizer, credit, limits }: Config): string[] {
  const unused: [path: string, why: string][] = [];
  if (mode !== 'authorizer' && authorizer.url !== undefined) unused.push(['authorizer.url', 'no authorizer is asked']);
  if (mode === 'gateway') {
    if (credit.file !== undefined) unused.push(['credit.file', 'the gateway is responsible for credit']);
    for (const path of changedLimits(limits)) unused.push([path, 'the gateway is responsible for limits']);
  }
  return unused.map(([path, why]) => `${path} is not used: with access.mode ${mode} ${why}`);
}

/** The limits that are not the defaults. */
function changedLimits(limits: Config['limits']): string[] {
  return settings(limitsSection).flatMap(({ path, schema }) => {
    const [group, name] = path.split('.') as [keyof typeof limits, keyof (typeof limits)['chat']];
    return limits[group][name] === schema.default ? [] : [`limits.${path}`];
  });
}

function urlProblem(url: string, overSocket: boolean): string | undefined {
  if (!URL.canParse(url)) return 'authorizer.url must be a URL';
  const { protocol, hostname } = new URL(url);
  // Keys and their hashes must not cross a network unencrypted.
  if (protocol === 'http:' && !overSocket && !isLoopback(hostname.replace(/^\[|\]$/g, '')))
    return 'authorizer.url must be https, unless it names a loopback address or authorizer.socket is set';
  return undefined;
}
