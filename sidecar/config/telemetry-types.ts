/** Exports to an OTLP endpoint; off without `endpoint`. Times in ms. */
export interface OtlpConfig {
  readonly endpoint?: string;
  readonly headersFile?: string;
  readonly serviceName: string;
  readonly traces: boolean;
  readonly metrics: boolean;
  /** Share of the requests without a trace context. */
  readonly samplePercent: number;
  readonly metricsIntervalMs: number;
  readonly batchMs: number;
  readonly batchRequests: number;
  readonly maxQueued: number;
  readonly timeoutMs: number;
  readonly stopMs: number;
}
