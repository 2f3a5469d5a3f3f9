/**
 * The destination of usage: that of `url` and `nats.servers` which is set. Without both, records stay in
 * the spool within the retention limits.
 */
export interface DeliveryConfig {
  readonly url?: string;
  readonly secretFile?: string;
  readonly nats: NatsConfig;
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

/** A JetStream stream. */
export interface NatsConfig {
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
  readonly tls: boolean;
  /** PEM, as the next two. */
  readonly caFile?: string;
  readonly certFile?: string;
  readonly keyFile?: string;
}
