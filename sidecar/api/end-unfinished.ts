import type { RequestContext, Stop } from './request-context.js';
import type { RunEnd } from './run-job.js';
import type { UsageSession } from './usage-session.js';

/** Answers and records every end of a run except `done`, in the same way for every route. */
export async function endUnfinished(
  context: RequestContext,
  usage: UsageSession,
  end: Exclude<RunEnd, { readonly kind: 'done' }>,
): Promise<void> {
  switch (end.kind) {
    case 'cancelled':
      context.cancelled(context.phase);
      await usage.close('cancelled');
      return;
    case 'failed':
      context.fail(end.error);
      await usage.close(end.outcome);
      return;
    case 'stopped':
      context.stop(end.stop);
      await usage.close(outcomeOf(end.stop));
  }
}

function outcomeOf(stop: Stop): 'cancelled' | 'timeout' | 'refused' {
  if (stop.kind === 'cancelled') return 'cancelled';
  const { code } = stop.kind === 'failed' ? stop.error : stop;
  return code === 'timeout' ? 'timeout' : 'refused';
}
