/** What a refusal of the strict contract adds. */
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ContractCase, Refusal } from './rule.js';

const ACCEPTED = '; `contract: compatible` accepts it';

/**
 * The refusal of a case with the setting, where the other contract takes the body. That contract itself is asked; named-refusals.ts
 * has the words of some of them.
 */
export function withSetting({ route, refusal, body }: ContractCase): Refusal | undefined {
  if (route !== 'chat' || refusal === undefined || refusal.message.endsWith(ACCEPTED)) return refusal;
  const accepted = parseChat(body(), 'compatible').kind === 'ok';
  return accepted ? { ...refusal, message: refusal.message + ACCEPTED } : refusal;
}
