import { grammarNeed } from '../../grammar/mask-memory.js';
import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';

/**
 * A model's memory including what its grammars may keep, which is host memory. Decision models have no grammars.
 * `vocabulary`: tokens.
 */
export function withGrammars(needs: Needs, kind: EngineSetup['kind'], vocabulary: number): Needs {
  if (kind !== 'chat') return needs;
  return { ...needs, cpu: { ...needs.cpu, grammars: grammarNeed(vocabulary) } };
}
