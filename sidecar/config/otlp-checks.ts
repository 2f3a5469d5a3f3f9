import type { Config } from './types.js';
import { isOpen, isPlainUrl } from './urls.js';

/** What the section `telemetry.otlp` demands of itself and is broken, as in checks.ts. */
export function otlpContradictions({ telemetry: { otlp } }: Config): string[] {
  const broken: string[] = [];
  if (otlp.endpoint !== undefined && !isBase(otlp.endpoint)) {
    broken.push(
      'telemetry.otlp.endpoint must be a URL without a name and password, a query or a fragment: headers have a file of their own',
    );
  }
  if (otlp.batchRequests > otlp.maxQueued) {
    broken.push('telemetry.otlp.maxQueued must be at least telemetry.otlp.batchRequests');
  }
  return broken;
}

/** What is allowed there and yet probably not meant, as in checks.ts. */
export function otlpHints({ telemetry: { otlp } }: Config): string[] {
  if (otlp.endpoint === undefined || otlp.headersFile === undefined || !isOpen(otlp.endpoint)) return [];
  return ['telemetry.otlp.endpoint is no https: its headers can be read on the way'];
}

/** Whether paths can be put behind it. */
function isBase(text: string): boolean {
  return isPlainUrl(text) && !/[?#]/.test(text);
}
