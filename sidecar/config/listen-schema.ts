import { port, section, text, type SettingSchema } from './kinds.js';

/** The public listener, for callers or a gateway. */
export const listenSchema: SettingSchema = section({
  host: text('Address of the public listener. `::`: all addresses, IPv6 and IPv4.', {
    default: '127.0.0.1',
    maxLength: 253,
  }),
  port: port('Port of the public listener. 0: any free port.', 8080),
  tcp: {
    type: 'boolean',
    description: 'Listen on `host` and `port`. `false`: only on `socket`.',
    default: true,
  },
  socket: text('Path of a Unix socket to listen on, relative to the working directory; at most 107 bytes.', {
    defaultText: 'none',
    maxLength: 107,
  }),
  socketMode: text('File mode of the socket, octal: which users may connect.', {
    default: '0660',
    pattern: '^0?[0-7]{3}$',
    maxLength: 4,
  }),
  maxConnections: {
    type: 'integer',
    description:
      'Open connections, idle ones included; further ones are closed at once. It must fit below the limit of open files together with a reserve ([operating.md](operating.md#open-files)).',
    minimum: 16,
    maximum: 1_000_000,
    unit: 'connections',
    defaultText: 'the limit of open files less the reserve, at most 65536',
  },
});

/** TLS on the public listener's port. */
export const tlsSchema: SettingSchema = section({
  keyFile: text(
    'File of the private key in PEM. With it the public listener’s port speaks HTTPS (TLS 1.2 and 1.3) alone.',
    {
      defaultText: 'none: plain HTTP',
    },
  ),
  certFile: text(
    'File of the certificate and its chain in PEM. Both files are watched; a renewed pair is used for new connections without a restart.',
    {
      defaultText: 'none: plain HTTP',
    },
  ),
});
