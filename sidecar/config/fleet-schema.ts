import { section, text, type SettingSchema } from './kinds.js';

/** One sidecar among several: docs/kubernetes.md. Off, since it tells whoever can reach the public listener how busy this one is. */
export const fleetSchema: SettingSchema = section({
  pickerMetrics: {
    type: 'boolean',
    description:
      'Answer `/metrics` on the public listener, without a key, with the load of the whole process alone: what an endpoint picker reads there. No model, account or caller is named.',
    default: false,
  },
  scrapeSecretFile: text(
    'File with secrets, one a line, 32 to 256 visible ASCII characters each. Who sends one as `Authorization: Bearer` gets all metrics at `/metrics` on the public listener. Read again when it changes and on SIGHUP.',
    { defaultText: 'none: all metrics are on the operators’ listener alone' },
  ),
  loadReport: text(
    'The response field `endpoint-load-metrics` (ORCA) on the public listener. `asked`: where the request’s `endpoint-load-metrics-format` names a format; `text`, `json`: on every response, in that format unless another is asked for.',
    { enum: ['off', 'asked', 'text', 'json'], default: 'off' },
  ),
});
