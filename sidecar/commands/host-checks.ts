/** What `ra-sidecar doctor` checks of the host: Node, limits, folders, addresses, and the configured files. */
import { randomUUID } from 'node:crypto';
import { access, constants, rm, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { accountOf, readKeyFile, stateOfKey } from '../access/key-file.js';
import { tokenLimitsOf } from '../access/limits.js';
import { CREDIT } from '../access/credit.js';
import { CertificateFiles } from '../lib/certificate-files.js';
import { readBearerToken, readSecrets } from '../lib/secret-file.js';
import { VERSION } from '../lib/version.js';
import type { Clock } from '../lib/clock.js';
import { keysFileOf, type Config } from '../config/config.js';
import { makesDevelopmentKey, filesOpenToOthers } from '../app/identities.js';
import { addressProblem, addressText, socketPathState, socketProblem } from '../http/addresses.js';
import { connectionBounds, descriptorLimit } from '../app/descriptors.js';
import { readHeaders } from '../app/otlp-export.js';
import { readText } from '../lib/checked-file.js';
import { systemText } from '../lib/missing.js';
import { spoolDir } from '../app/usage.js';
import { checkSinkFiles, sinkFiles } from '../usage/delivery/sinks.js';
import { lockOwner } from '../usage/lock.js';
import { readPriceFile } from '../usage/prices.js';
import { size } from './terminal.js';

/** One line of `ra-sidecar doctor`. */
export interface Check {
  readonly what: string;
  readonly level: 'ok' | 'warn' | 'fail';
  /** What was found, one line. */
  readonly says: string;
  /** What to do about it. */
  readonly advice?: string;
}

type Line = (what: string, says: string, advice?: string) => Check;

const line =
  (level: Check['level']): Line =>
  (what, says, advice) => ({ what, level, says, ...(advice !== undefined && { advice }) });

export const [ok, warn, fail] = [line('ok'), line('warn'), line('fail')];

/** Below this number, connections are refused long before seats are the limit. */
const LEAST_FILES = 4096;

/** The package's `engines`, by major version: the least minor one. */
const NODE_MINORS: ReadonlyMap<number, number> = new Map([
  [20, 19],
  [22, 13],
  [24, 0],
  [26, 0],
]);

/** Releases that get no security updates any more. They stay runnable for hosts that have nothing newer, until version 1.0. */
const PAST_END_OF_LIFE: ReadonlySet<number> = new Set([20]);

/** All checks, in the order in which they are printed. Problems of the machine never cause a rejection. */
export async function hostChecks(config: Config, clock: Clock): Promise<Check[]> {
  const running = await isRunning(config);
  return [
    ok('ra-sidecar', VERSION),
    nodeCheck(process.versions.node),
    await httpCheck(),
    contractCheck(config),
    swapCheck(systemText('/proc/swaps'), swapLimit()),
    filesLimitCheck(systemText('/proc/self/limits')),
    connectionsCheck(config, descriptorLimit()),
    ...(await guarded('usage spool', () => spoolChecks(config))),
    ...(await guarded('addresses', () => addressChecks(config, running))),
    ...(await guarded('files', () => namedFileChecks(config, clock))),
  ];
}

/** Whether a sidecar runs on this data folder. */
export async function isRunning(config: Pick<Config, 'dataDir'>): Promise<boolean> {
  return (await lockOwner(spoolDir(config)).catch(() => undefined)) !== undefined;
}

/** The results of `look`. If it throws, that becomes a failed check and the other checks still run. */
export async function guarded(what: string, look: () => Promise<Check[]>): Promise<Check[]> {
  try {
    return await look();
  } catch (error) {
    const why = error instanceof Error ? error.message : 'unknown failure';
    return [fail(what, `the check itself failed: ${why}`)];
  }
}

/** Which requests are accepted, and the setting that decides it. */
function contractCheck({ contract }: Pick<Config, 'contract'>): Check {
  const says =
    contract === 'strict'
      ? 'strict: fields and JSON schemas outside docs/contract.md are refused; compatible accepts those of clients and agent frameworks'
      : 'compatible: accepts the fields and JSON schemas of clients and agent frameworks, and POST /v1/responses';
  return ok('contract', says);
}

/** Of this process's control group, version 2. */
function swapLimit(): string | undefined {
  const group = /^0::(\/.*)$/m.exec(systemText('/proc/self/cgroup'))?.[1];
  return group === undefined ? undefined : systemText(join('/sys/fs/cgroup', group, 'memory.swap.max')) || undefined;
}

/** `limits`: the text of /proc/self/limits; empty if it does not exist. */
export function filesLimitCheck(limits: string): Check {
  const what = 'open files';
  const soft = /^Max open files +(\S+)/m.exec(limits)?.[1];
  if (soft === undefined) return ok(what, 'this system does not report the limit');
  if (soft === 'unlimited' || Number(soft) >= LEAST_FILES) return ok(what, `at most ${soft}`);
  const advice = `each connection uses one: set LimitNOFILE=65536 in the unit, or ulimit -n, at least ${LEAST_FILES}`;
  return warn(what, `at most ${soft}`, advice);
}

/** `limit`: of file descriptors. */
export function connectionsCheck(config: Parameters<typeof connectionBounds>[0], limit: number): Check {
  const what = 'connections';
  const shared = connectionBounds(config, limit);
  if (shared.kind === 'short') return fail(what, shared.line);
  return ok(what, `${shared.bounds.public} at most on the public listener`);
}

/** `version`: of Node, as in "22.13.0". */
export function nodeCheck(version: string): Check {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const least = NODE_MINORS.get(major);
  const wanted = [...NODE_MINORS].map(([name, from]) => `${name}.${from} or newer ${name}`).join(', or ');
  if (least === undefined || minor < least)
    return fail('Node', `${version} is not supported`, `install Node ${wanted}`);
  if (!PAST_END_OF_LIFE.has(major)) return ok('Node', version);
  const advice = 'install Node 24 (Node 22 on glibc below 2.38): Node 20 gets no security updates since April 2026';
  return warn('Node', `${version} works, and is past its end of life`, advice);
}

/** Its binaries are made for certain versions of Node and of the C library. */
export async function httpCheck(): Promise<Check> {
  const what = 'HTTP library';
  try {
    await import('../http/uws.js');
    return ok(what, 'uWebSockets.js loads');
  } catch (error) {
    return fail(what, error instanceof Error ? error.message : 'does not load');
  }
}

/**
 * Whether memory may be written to a swap device: engines keep prompts in memory. `swaps`: the text of /proc/swaps; empty if it does
 * not exist. `most`: the text of the control group's memory.swap.max; undefined if there is none.
 */
export function swapCheck(swaps: string, most: string | undefined): Check {
  const what = 'swap';
  const devices = swaps.trim().split('\n').slice(1);
  if (devices.length === 0) return ok(what, swaps === '' ? 'this system does not report it' : 'none');
  if (most?.trim() === '0') return ok(what, 'this control group has none (memory.swap.max is 0)');
  const says =
    'memory may be written to disk, and with it prompts that engines keep (docs/security.md#where-content-stays)';
  return warn(what, says, 'swapoff, encrypted swap, or MemorySwapMax=0 in the unit');
}

/** `running`: a sidecar runs on the same data folder, so that its addresses are taken. */
async function addressChecks({ listen, operators }: Config, running: boolean): Promise<Check[]> {
  const checks: Check[] = [];
  if (listen.tcp) checks.push(await addressCheck('public address', listen.host, listen.port, running));
  checks.push(await addressCheck('operators’ address', operators.host, operators.port, running));
  if (listen.socket !== undefined) checks.push(await socketCheck(listen.socket, running));
  return checks;
}

async function addressCheck(what: string, host: string, port: number, running: boolean): Promise<Check> {
  const says = addressText(host, port);
  const code = await addressProblem(host, port);
  if (code === undefined) return ok(what, port === 0 ? `${says}, any free port` : `${says} is free`);
  if (code === 'EADDRINUSE' && running) {
    return ok(what, `${says} is in use, and a sidecar runs on this data folder`);
  }
  const advice = code === 'EADDRINUSE' ? 'stop it, or set another port' : 'set another address or port';
  return fail(what, `${says} cannot be used (${code})`, advice);
}

async function socketCheck(path: string, running: boolean): Promise<Check> {
  const what = 'socket';
  const problem = await socketProblem(path);
  if (problem !== undefined) {
    const advice = `create ${dirname(path)} for the sidecar’s user, or set another path`;
    return fail(what, `${path} cannot be created: ${problem}`, advice);
  }
  const state = await socketPathState(path);
  if (state.kind !== 'taken') return ok(what, `${path} can be created`);
  if (state.listening && running) {
    return ok(what, `${path} is in use, and a sidecar runs on this data folder`);
  }
  return fail(what, `cannot listen on ${path}: ${state.why}`, 'set another path');
}

async function spoolChecks(config: Config): Promise<Check[]> {
  const dir = spoolDir(config);
  const what = 'usage spool';
  const folder = await nearest(dir);
  try {
    await tryToWrite(folder);
  } catch (error) {
    const { code = 'failed' } = error as NodeJS.ErrnoException;
    const advice = 'create it for the user that the sidecar runs as';
    return [fail(what, `${folder} cannot be written (${code})`, advice)];
  }
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const { minFreeBytes } = config.usage;
  const says = `${dir} can be written, ${size(free)} free`;
  if (free < minFreeBytes) {
    const advice = `below usage.minFreeBytes (${size(minFreeBytes)}) nothing is served: make room`;
    return [fail(what, says, advice)];
  }
  if (free < 4 * minFreeBytes) return [warn(what, says, 'make room before it is needed')];
  return [ok(what, says)];
}

/** Only a write shows whether one is possible: modes do not bind root, and a disk may be full or read-only. */
async function tryToWrite(folder: string): Promise<void> {
  const probe = join(folder, `.ra-doctor-${randomUUID()}`);
  try {
    await writeFile(probe, 'x', { mode: 0o600 });
  } finally {
    // A file name can be created even on a full disk.
    await rm(probe, { force: true });
  }
}

/** The folder, or its nearest existing parent. */
async function nearest(dir: string): Promise<string> {
  const there = await access(dir, constants.F_OK).then(
    () => true,
    () => false,
  );
  return there || dirname(dir) === dir ? dir : await nearest(dirname(dir));
}

async function namedFileChecks(config: Config, clock: Clock): Promise<Check[]> {
  const { access: mode, operators, gateway, authorizer, pricing, credit, delivery, fleet, models, tls } = config;
  const { keyFile = '', certFile } = tls;
  const certificate = async (file: string): Promise<void> => {
    const ignored = { changed: () => true, unusable: () => undefined };
    (await CertificateFiles.open({ keyFile, certFile: file }, clock, ignored)).close();
  };
  return [
    ...(mode.mode === 'keys' ? [await keysCheck(config)] : []),
    ...(await filesOpenToOthers(config)).map(({ file, problem }): Check => {
      return warn('secret files', `${file}: ${problem}`, `chmod o= ${file}`);
    }),
    ...(await fileCheck('certificate', certFile, certificate)),
    ...(await fileCheck('operators’ keys', operators.secretFile, readSecrets)),
    ...(await fileCheck('gateway’s secrets', gateway.secretFile, readSecrets)),
    ...(await fileCheck('authorizer’s secret', authorizer.secretFile, readSecrets)),
    ...(await fileCheck('scrapers’ secrets', fleet.scrapeSecretFile, readSecrets)),
    ...(await fileCheck('keys of stored files', config.batch.keyFile, readSecrets)),
    ...(await fileCheck('OTLP headers', config.telemetry.otlp.headersFile, readHeaders)),
    ...(await fileCheck('delivery’s secret', delivery.secretFile, readBearerToken)),
    ...(await fileCheck('delivery’s files', sinkFiles(delivery).join(', ') || undefined, () =>
      checkSinkFiles(delivery),
    )),
    ...(await fileCheck('price list', pricing.file, (file) => readPriceFile(file, models, Date.now()))),
    ...(await fileCheck('credit', credit.file, async (file) =>
      CREDIT.parse((await readText(CREDIT.what, file, CREDIT.maxBytes)) ?? '', file),
    )),
  ];
}

async function keysCheck(config: Config): Promise<Check> {
  const { environment } = config;
  const path = keysFileOf(config);
  const what = 'keys';
  try {
    const file = await readKeyFile(path);
    // The development key is replaced by each start that makes one, and ignored by all others.
    const given = file.keys.filter(({ development }) => development !== true);
    const now = Date.now();
    const good = given.filter((key) => stateOfKey(key, file, now) === 'good');
    const working = good.filter(({ entitlements }) => Object.hasOwn(entitlements, environment));
    const works = working.length;
    if (works > 0) {
      const others = given.length - works;
      const limited = working.filter(({ account, entitlements }) =>
        [entitlements[environment], accountOf(file, account)].some(
          (each) => each !== undefined && Object.keys(tokenLimitsOf(each)).length > 0,
        ),
      ).length;
      const quotas = limited === 0 ? '' : `, ${limited} of them with token quotas`;
      const says = `${works} in ${path} for environment ${environment}${quotas}`;
      return ok(what, others === 0 ? says : `${says}, and ${others} that do not work in it`);
    }
    const made = makesDevelopmentKey(config);
    if (made && given.length === 0) {
      return ok(what, 'none yet; serve creates one for development');
    }
    const advice = `ra-sidecar keys create --account A --environment ${environment}`;
    if (given.length === 0) return warn(what, `none in ${path}: no caller can authenticate`, advice);
    const elsewhere = [...new Set(good.flatMap(({ entitlements }) => Object.keys(entitlements)))];
    const why = [
      ...(good.length > 0 ? [`${good.length} for ${elsewhere.join(', ') || 'no environment'} only`] : []),
      ...(given.length > good.length
        ? [`${given.length - good.length} revoked, expired, frozen or without account`]
        : []),
    ];
    const says = `no key of ${path} works in environment ${environment}, the one of this configuration (${why.join('; ')})`;
    return warn(what, made ? `${says}; serve creates one for development` : says, advice);
  } catch (error) {
    return unusable(what, error);
  }
}

/** A file that the configuration names, if any. */
async function fileCheck(
  what: string,
  file: string | undefined,
  read: (file: string) => Promise<unknown>,
): Promise<Check[]> {
  if (file === undefined) return [];
  try {
    await read(file);
    return [ok(what, `${file} can be used`)];
  } catch (error) {
    return [unusable(what, error)];
  }
}

/** Its errors name the file and the problem, never the content. */
function unusable(what: string, error: unknown): Check {
  const says = error instanceof Error ? error.message : 'cannot be read';
  return fail(what, says, 'fix the file, or its permissions for the sidecar’s user');
}
