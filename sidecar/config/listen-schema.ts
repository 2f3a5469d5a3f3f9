import { port, section, text, type SettingSchema } from './kinds.js';

/** Where callers, and a gateway in front, connect. */
export const listenSchema: SettingSchema = section({
  host: text('Address of the public listener.', { default: '127.0.0.1', maxLength: 253 }),
  port: port('Port of the public listener. 0: any free one.', 8080),
  tcp: {
    type: 'boolean',
    description: 'Listen on `host` and `port`. `false`: on `socket` alone.',
    default: true,
  },
  socket: text('Path of a Unix socket to listen on, from the working directory; at most 107 bytes.', {
    defaultText: 'none',
    maxLength: 107,
  }),
  socketMode: text('Who may connect to the socket: its file mode, octal. Whoever may can send requests.', {
    default: '0660',
    pattern: '^0?[0-7]{3}$',
    maxLength: 4,
  }),
  maxConnections: {
    type: 'integer',
    description:
      'Open connections, idle ones included; one more is closed at once. It must fit below the limit of open files with a reserve beside it ([operating.md](operating.md#open-files)).',
    minimum: 16,
    maximum: 1_000_000,
    unit: 'connections',
    defaultText: 'what the limit of open files leaves, at most 65536',
  },
});
