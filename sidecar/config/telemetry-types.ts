/** What is sent to an OTLP endpoint; without `endpoint` nothing is. Times in ms. */
export interface OtlpConfig {
  readonly endpoint?: string;
  readonly headersFile?: string;
  readonly serviceName: string;
  readonly traces: boolean;
  readonly metrics: boolean;
  /** Of requests that come without a trace. */
  readonly samplePercent: number;
  readonly metricsIntervalMs: number;
  readonly batchMs: number;
  readonly batchRequests: number;
  readonly maxQueued: number;
  readonly timeoutMs: number;
  readonly stopMs: number;
}
