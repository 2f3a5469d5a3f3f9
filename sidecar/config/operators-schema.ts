import { port, section, text, type SettingSchema } from './kinds.js';

/** Where operators look: `operators`. */
export const operatorsSchema: SettingSchema = section({
  host: text('Address of the operators’ listener. Loopback, unless `operators.secretFile` is set.', {
    default: '127.0.0.1',
    maxLength: 253,
  }),
  port: port('Port of the operators’ listener. 0: any free one.', 9090),
  secretFile: text(
    'File of the operators’ keys, one a line, each of 32 to 256 visible ASCII characters. With it `/metrics`, `/admission` and the console’s feed are answered to who sends one of them as the bearer. It is followed.',
    { defaultText: 'no key is asked for' },
  ),
});
