/** The checks of `ra-sidecar doctor` for addresses: each is bound for a moment, or looked at where that would change something. */
import { dirname } from 'node:path';
import type { Config } from '../config/config.js';
import { addressProblem, addressText, socketProblem, socketPathState } from '../http/addresses.js';
import type { Check } from './check.js';

/** `running`: a sidecar runs on the same data folder, so that its addresses are taken. */
export async function addressChecks({ listen, operators }: Config, running: boolean): Promise<Check[]> {
  const checks: Check[] = [];
  if (listen.tcp) checks.push(await addressCheck('public address', listen.host, listen.port, running));
  checks.push(await addressCheck('operators’ address', operators.host, operators.port, running));
  if (listen.socket !== undefined) checks.push(await socketCheck(listen.socket, running));
  return checks;
}

async function addressCheck(what: string, host: string, port: number, running: boolean): Promise<Check> {
  const says = addressText(host, port);
  const code = await addressProblem(host, port);
  if (code === undefined) return { what, level: 'ok', says: port === 0 ? `${says}, any free port` : `${says} is free` };
  if (code === 'EADDRINUSE' && running) {
    return { what, level: 'ok', says: `${says} is in use, and a sidecar runs on this data folder` };
  }
  const advice = code === 'EADDRINUSE' ? 'stop it, or set another port' : 'set another address or port';
  return { what, level: 'fail', says: `${says} cannot be used (${code})`, advice };
}

async function socketCheck(path: string, running: boolean): Promise<Check> {
  const what = 'socket';
  const problem = await socketProblem(path);
  if (problem !== undefined) {
    const advice = `create ${dirname(path)} for the sidecar’s user, or set another path`;
    return { what, level: 'fail', says: `${path} cannot be created: ${problem}`, advice };
  }
  const state = await socketPathState(path);
  if (state.kind !== 'taken') return { what, level: 'ok', says: `${path} can be created` };
  if (state.listening && running) {
    return { what, level: 'ok', says: `${path} is in use, and a sidecar runs on this data folder` };
  }
  return { what, level: 'fail', says: `cannot listen on ${path}: ${state.why}`, advice: 'set another path' };
}
