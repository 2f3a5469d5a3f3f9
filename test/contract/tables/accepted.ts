/** The end of a refusal of the strict contract that names the setting. */
import { parseChat } from '../../../sidecar/contracts/parse.js';
import type { ContractCase, Refusal } from './rule.js';

const ACCEPTED = '; `contract: compatible` accepts it';

/**
 * The refusal of a case, with the setting named if the compatible contract accepts the body, in place of the fields. That contract itself
 * decides; named-refusals.ts states some of them in full.
 */
export function withSetting({ route, refusal, body }: ContractCase): Refusal | undefined {
  if (route !== 'chat' || refusal === undefined || refusal.message.endsWith(ACCEPTED)) return refusal;
  const accepted = parseChat(body(), 'compatible').kind === 'ok';
  return accepted ? { ...refusal, message: refusal.message.replace(/; its fields are .*$/, '') + ACCEPTED } : refusal;
}
