import { isLoopback } from './loopback.js';
import type { NatsConfig } from './delivery-types.js';
import type { Config } from './types.js';
import { isOpen, isPlainUrl, withoutBrackets } from './urls.js';

/** Rules between the settings of `delivery`; see checks.ts. */
export function deliveryContradictions({ delivery }: Config): string[] {
  const { url, nats } = delivery;
  const broken: string[] = [];
  if (delivery.backoffMaxMs < delivery.backoffMinMs) {
    broken.push('delivery.backoffMaxMs must be at least delivery.backoffMinMs');
  }
  if (url !== undefined && !isPlainUrl(url)) {
    broken.push('delivery.url must be a URL without user name and password; use delivery.secretFile');
  }
  if (url !== undefined && nats.servers.length > 0) {
    broken.push('delivery must name one sink: url or nats.servers');
  }
  return [...broken, ...natsContradictions(nats)];
}

/** Settings that are allowed but probably not intended; see checks.ts. */
export function deliveryHints({ delivery }: Config): string[] {
  const { url, secretFile, nats } = delivery;
  const hints: string[] = [];
  if (url !== undefined && secretFile !== undefined && isOpen(url)) {
    hints.push('delivery.url is not https: usage and its secret are sent unencrypted');
  }
  if (!nats.tls && nats.auth !== 'none' && !nats.servers.map(hostOf).every(isLoopback)) {
    hints.push('delivery.nats.tls is off: usage and its secret are sent unencrypted');
  }
  return hints;
}

/** The host of `nats://host`, `nats://host:port` or `nats://[::1]:port`. */
function hostOf(server: string): string {
  return withoutBrackets(server.replace(/^nats:\/\//, '').replace(/:\d+$/, ''));
}

function natsContradictions({ auth, secretFile, tls, caFile, certFile, keyFile }: NatsConfig): string[] {
  const name = 'delivery.nats';
  const broken: string[] = [];
  if ((auth === 'none') !== (secretFile === undefined)) {
    broken.push(`${name}.secretFile must be set where ${name}.auth is not none, and only there`);
  }
  const files = Object.entries({ caFile, certFile, keyFile }).flatMap(([key, file]) => (file === undefined ? [] : key));
  if (!tls && files.length > 0) broken.push(`${name}.tls must be true for ${name}.${files.join(' and ')}`);
  if ((certFile === undefined) !== (keyFile === undefined)) {
    broken.push(`${name}.certFile must be set together with ${name}.keyFile`);
  }
  return broken;
}
