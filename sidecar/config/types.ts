import type { DeliveryConfig } from './delivery-types.js';
import type { ModelConfig } from './model-types.js';
import type { OtlpConfig } from './telemetry-types.js';

/** The configuration: validated once at the start and frozen, lists included. schema.ts describes each setting. */
export interface Config {
  /** The public listener. */
  readonly listen: ListenConfig;
  /** Both, or neither: the port then speaks plain HTTP. */
  readonly tls: { readonly keyFile?: string; readonly certFile?: string };
  /** The operators' listener. */
  readonly operators: {
    readonly host: string;
    readonly port: number;
    /** File with the required keys; absent: no key is required. */
    readonly secretFile?: string;
  };
  /** The most viewers of the operators' console at once (0: no console), and the time between its updates. */
  readonly console: { readonly viewers: number; readonly intervalMs: number };
  /** The environment whose entitlements apply, for example `development`. */
  readonly environment: string;
  /** Where keys and other state live. */
  readonly dataDir: string;
  /** Which chat requests are accepted: those of the closed contract, or also what clients send beside it. */
  readonly contract: 'strict' | 'compatible';
  /** How callers are authenticated. */
  readonly access: { readonly mode: 'keys' | 'authorizer' | 'gateway' };
  readonly keys: {
    readonly file: string;
    /** How often the file is checked without an event, ms. */
    readonly pollMs: number;
    /** Failing keys from one address. 0: no limit. */
    readonly failuresPerMinute: number;
  };
  /** For keys without limits of their own; 0 means no limit. */
  readonly limits: {
    /** Both decision routes together. */
    readonly decisions: LimitConfig;
    readonly chat: LimitConfig;
    readonly models: LimitConfig;
  };
  /** Without a file no gateway is accepted. `class`: the service class of accounts behind it. */
  readonly gateway: { readonly secretFile?: string; readonly class: 'interactive' | 'standard' | 'batch' };
  readonly authorizer: AuthorizerConfig;
  readonly models: readonly ModelConfig[];
  readonly queue: {
    readonly maxWaitMs: number;
    readonly waitingPerSeat: number;
    readonly waitingBytes: number;
    /** Requests wait while their model loads. */
    readonly waitForLoad: boolean;
  };
  readonly bodies: {
    readonly chatBytes: number;
    readonly totalBytes: number;
    readonly shortBytes: number;
    /** Up to this many bytes a body is parsed on the sidecar's event loop. */
    readonly inlineBytes: number;
  };
  readonly stream: {
    readonly keepAliveMs: number;
    /** 0: nothing is joined. */
    readonly intervalMs: number;
    /** Which streams end with a trailer; asked: those of requests with `TE: trailers`. */
    readonly trailer: 'asked' | 'always';
    readonly maxBufferedBytes: number;
    readonly totalBufferedBytes: number;
  };
  readonly request: {
    /** From the body's last byte; then a request ends, waiting or running. 0: no limit. */
    readonly timeoutMs: number;
  };
  /** isolate: no question shares a decode with anything else. */
  readonly decisions: { readonly isolate: boolean };
  readonly idempotency: { readonly maxKeys: number; readonly keepMs: number };
  /** file: the price list; absent: the built-in one. */
  readonly pricing: { readonly file?: string };
  readonly credit: {
    /** Grants of accounts; absent: credit is not checked. */
    readonly file?: string;
    readonly pollMs: number;
    readonly snapshotMs: number;
    readonly snapshotCloses: number;
    readonly onLostBalances: 'refuse' | 'begin';
  };
  readonly delivery: DeliveryConfig;
  /** The spool of usage records. */
  readonly usage: {
    readonly segmentBytes: number;
    readonly groupMs: number;
    readonly groupRecords: number;
    /** A record that is not durable after this long makes the spool unhealthy. */
    readonly maxUnsyncedMs: number;
    readonly minFreeBytes: number;
    readonly maxBacklogBytes: number;
    readonly probeMs: number;
    /** The longest that a reply's end waits for its usage to be durable. */
    readonly closeWaitMs: number;
  };
  readonly fleet: FleetConfig;
  readonly drain: {
    /** From SIGTERM, when /readyz answers 503, to the first request that is refused. */
    readonly noticeMs: number;
    /** From then on: how long running requests may take to finish. */
    readonly timeoutMs: number;
  };
  readonly engine: {
    readonly startTimeoutMs: number;
    readonly heartbeatMs: number;
    /** An engine without a heartbeat, or with pending work and no step, for this long is killed and restarted. */
    readonly hangMs: number;
    readonly backoffMinMs: number;
    readonly backoffMaxMs: number;
    /** A file of weights of which nothing can be read for so long is given up. */
    readonly fileSilenceMs: number;
    /** How long a reload waits for the jobs of a process that is or was to be replaced. */
    readonly reloadWaitMs: number;
    /** Refuse to load a model that does not fit into memory; engines then load one after another. */
    readonly checkMemory: boolean;
  };
  readonly prompts: {
    readonly workers: number;
    /** A prompt host that does not answer for one item for this long is killed. */
    readonly silenceMs: number;
    /** Items waiting for a worker. */
    readonly maxQueued: number;
  };
  readonly cors: { readonly origins: readonly string[] };
  /** For developers of the sidecar. */
  readonly development: {
    /** False, for comparisons: the queue without what it learns of overload. */
    readonly learnedQueue: boolean;
    /** Log each answer that violates its schema. */
    readonly validateAnswers: boolean;
  };
  readonly telemetry: { readonly otlp: OtlpConfig };
  readonly log: { readonly level: 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent' };
}

export interface LimitConfig {
  /** Requests at once. */
  readonly inFlight: number;
  /** Requests in any 60 seconds. */
  readonly perMinute: number;
}

/** `tcp`: on host and port; `socket`: on a path of this machine. One of the two at least. */
export interface ListenConfig {
  readonly host: string;
  readonly port: number;
  readonly tcp: boolean;
  readonly socket?: string;
  /** Octal. */
  readonly socketMode: string;
  /** Absent: the limit of descriptors less the reserve. */
  readonly maxConnections?: number;
}

/** One sidecar among several. */
export interface FleetConfig {
  /** Whether the process's load is at /metrics on the public listener, without a key. */
  readonly pickerMetrics: boolean;
  /** A request with one of its secrets gets all metrics there. */
  readonly scrapeSecretFile?: string;
  readonly loadReport: 'off' | 'asked' | 'text' | 'json';
}

/** An HTTP service that authenticates keys. Times in ms. */
export interface AuthorizerConfig {
  /** Set where `access.mode` is `authorizer`. */
  readonly url?: string;
  readonly socket?: string;
  /** What is sent of a key. */
  readonly send: 'hash' | 'key';
  readonly secretFile?: string;
  readonly timeoutMs: number;
  readonly concurrency: number;
  readonly cache: {
    readonly entries: number;
    readonly ttlMs: number;
    readonly deniedTtlMs: number;
    readonly staleMs: number;
  };
  readonly breaker: { readonly failures: number; readonly openMs: number };
}
