import { grammarNeed } from '../../grammar/mask-memory.js';
import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';

/**
 * What a model takes with what its grammars may keep, which lies in host memory. Decisions have none. `vocabulary`: tokens.
 */
export function withGrammars(needs: Needs, kind: EngineSetup['kind'], vocabulary: number): Needs {
  if (kind !== 'chat') return needs;
  return { ...needs, cpu: { ...needs.cpu, grammars: grammarNeed(vocabulary) } };
}
