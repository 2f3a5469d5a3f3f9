import type { Config } from './types.js';
import { isOpen, isPlainUrl } from './urls.js';

/** Rules between the settings of `telemetry.otlp`; see checks.ts. */
export function otlpContradictions({ telemetry: { otlp } }: Config): string[] {
  const broken: string[] = [];
  if (otlp.endpoint !== undefined && !isBase(otlp.endpoint)) {
    broken.push(
      'telemetry.otlp.endpoint must be a URL without user name, password, query and fragment; use telemetry.otlp.headersFile',
    );
  }
  if (otlp.batchRequests > otlp.maxQueued) {
    broken.push('telemetry.otlp.maxQueued must be at least telemetry.otlp.batchRequests');
  }
  return broken;
}

/** Settings that are allowed but probably not intended; see checks.ts. */
export function otlpHints({ telemetry: { otlp } }: Config): string[] {
  if (otlp.endpoint === undefined || otlp.headersFile === undefined || !isOpen(otlp.endpoint)) return [];
  return ['telemetry.otlp.endpoint is not https: its headers are sent unencrypted'];
}

/** Whether paths can be appended to it. */
function isBase(text: string): boolean {
  return isPlainUrl(text) && !/[?#]/.test(text);
}
