/**
 * The destination of usage: that of `url`, `nats.servers` and `kafka.brokers` which is set. Without any, records stay
 * in the spool within the retention limits.
 */
export interface DeliveryConfig {
  readonly url?: string;
  readonly secretFile?: string;
  readonly nats: NatsConfig;
  readonly kafka: KafkaConfig;
  readonly source: string;
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly maxAgeMs: number;
  readonly timeoutMs: number;
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  readonly stopMs: number;
  readonly deadLetterBytes: number;
  /** 0: without limit. */
  readonly retentionDays: number;
  readonly retentionBytes: number;
}

/** TLS settings of a message bus. The files are PEM. */
export interface BusTlsConfig {
  readonly tls: boolean;
  readonly caFile?: string;
  readonly certFile?: string;
  readonly keyFile?: string;
}

/** A JetStream stream. */
export interface NatsConfig extends BusTlsConfig {
  /** None: not configured. */
  readonly servers: readonly string[];
  readonly stream: string;
  /** Contains `{account}`. */
  readonly subject: string;
  /** Accounts whose events may be in flight at once. */
  readonly window: number;
  readonly auth: 'none' | 'password' | 'token' | 'nkey' | 'creds';
  /** Set unless `auth` is `none`. */
  readonly secretFile?: string;
}

/** A Kafka topic. */
export interface KafkaConfig extends BusTlsConfig {
  /** None: not configured. */
  readonly brokers: readonly string[];
  readonly topic: string;
  readonly auth: 'none' | 'plain' | 'scram-sha-256' | 'scram-sha-512';
  /** Set unless `auth` is `none`. */
  readonly secretFile?: string;
}
