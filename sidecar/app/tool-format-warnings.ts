/** Reports models that are asked for tool calls by a JSON instruction without the operator's choice. */
import type { ModelReport } from '../prompts/messages.js';
import type { Log } from '../telemetry/logger.js';

/** Logs each model of these whose own format of calls is not known, unless its `toolFormat` chose another. */
export function warnOfToolFormats(models: readonly Pick<ModelReport, 'id' | 'calls'>[], log: Pick<Log, 'warn'>): void {
  for (const { id, calls } of models) {
    if (calls && !calls.native && !calls.chosen)
      log.warn('tools without a native format', { model: id, reason: calls.says });
  }
}
