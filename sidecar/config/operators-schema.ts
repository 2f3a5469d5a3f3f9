import { port, section, text, type SettingSchema } from './kinds.js';

/** The operators' listener: `operators`. */
export const operatorsSchema: SettingSchema = section({
  host: text('Address of the operators’ listener. Loopback, unless `operators.secretFile` is set.', {
    default: '127.0.0.1',
    maxLength: 253,
  }),
  port: port('Port of the operators’ listener. 0: any free port.', 9090),
  secretFile: text(
    'File of the operators’ keys, one a line, each of 32 to 256 visible ASCII characters. With it, `/metrics`, `/admission`, `/keys`, `/models/reload` and the console’s feed require one of them as the bearer token; `/readyz` requires none, but gives `reasons` only with one. The file is watched for changes.',
    { defaultText: 'no key is required' },
  ),
});
