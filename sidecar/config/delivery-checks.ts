import { isLoopback } from './loopback.js';
import type { BusTlsConfig, DeliveryConfig } from './delivery-types.js';
import type { Config } from './types.js';
import { isOpen, isPlainUrl, withoutBrackets } from './urls.js';

/** Rules between the settings of `delivery`; see checks.ts. */
export function deliveryContradictions({ delivery }: Config): string[] {
  const { url, nats, kafka } = delivery;
  const broken: string[] = [];
  if (delivery.backoffMaxMs < delivery.backoffMinMs) {
    broken.push('delivery.backoffMaxMs must be at least delivery.backoffMinMs');
  }
  if (url !== undefined && !isPlainUrl(url)) {
    broken.push('delivery.url must be a URL without user name and password; use delivery.secretFile');
  }
  if ([url !== undefined, nats.servers.length > 0, kafka.brokers.length > 0].filter(Boolean).length > 1) {
    broken.push('delivery must name one sink: url, nats.servers or kafka.brokers');
  }
  return [...broken, ...busContradictions('delivery.nats', nats), ...busContradictions('delivery.kafka', kafka)];
}

/** Settings that are allowed but probably not intended; see checks.ts. */
export function deliveryHints({ delivery }: Config): string[] {
  const { url, secretFile, nats, kafka } = delivery;
  const hints: string[] = [];
  if (url !== undefined && secretFile !== undefined && isOpen(url)) {
    hints.push('delivery.url is not https: usage and its secret are sent unencrypted');
  }
  for (const [name, { tls, auth }, hosts] of buses({ nats, kafka })) {
    if (!tls && auth !== 'none' && !hosts.every(isLoopback)) {
      hints.push(`${name}.tls is off: usage and its secret are sent unencrypted`);
    }
  }
  return hints;
}

/** Each bus with its configured hosts. */
function buses({
  nats,
  kafka,
}: Pick<DeliveryConfig, 'nats' | 'kafka'>): [string, BusTlsConfig & { auth: string }, string[]][] {
  return [
    ['delivery.nats', nats, nats.servers.map((server) => hostOf(server.replace(/^nats:\/\//, '')))],
    ['delivery.kafka', kafka, kafka.brokers.map(hostOf)],
  ];
}

/** The host of `host`, `host:port` or `[::1]:port`. */
function hostOf(address: string): string {
  return withoutBrackets(address.replace(/:\d+$/, ''));
}

function busContradictions(
  name: string,
  { auth, secretFile, tls, caFile, certFile, keyFile }: BusTlsConfig & { auth: string; secretFile?: string },
): string[] {
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
