import { section, text, type SettingSchema } from './kinds.js';

/**
 * One sidecar among several (docs/kubernetes.md). Off by default, since it shows the load to everyone who can reach the
 * public listener.
 */
export const fleetSchema: SettingSchema = section({
  pickerMetrics: {
    type: 'boolean',
    description:
      'Answer `/metrics` on the public listener, without a key, with the load of the whole process for an endpoint picker. It names no model, account or caller.',
    default: false,
  },
  scrapeSecretFile: text(
    'File with secrets, one a line, 32 to 256 visible ASCII characters each. A request with one as `Authorization: Bearer` gets all metrics at `/metrics` on the public listener. Read again when it changes and on SIGHUP.',
    { defaultText: 'none: the full metrics are only on the operators’ listener' },
  ),
  loadReport: text(
    'The response header `endpoint-load-metrics` (ORCA) on the public listener. `asked`: if the request’s `endpoint-load-metrics-format` names a format; `text`, `json`: on every response, in that format unless the request names another.',
    { enum: ['off', 'asked', 'text', 'json'], default: 'off' },
  ),
});
