/** OTLP’s two requests, read by protobufjs with the field numbers of opentelemetry-proto. */
import protobuf from 'protobufjs';

const PROTO = `syntax = "proto3";
message Value { oneof value { string s = 1; bool b = 2; int64 i = 3; double d = 4; } }
message Pair { string key = 1; Value value = 2; }
message Resource { repeated Pair attributes = 1; }
message Scope { string name = 1; }
message Status { string message = 2; int32 code = 3; }
message Span {
  bytes traceId = 1; bytes spanId = 2; string traceState = 3; bytes parentId = 4; string name = 5; int32 kind = 6;
  fixed64 from = 7; fixed64 until = 8; repeated Pair attributes = 9; Status status = 15;
}
message Point {
  fixed64 from = 2; fixed64 at = 3; double double = 4; sfixed64 integer = 6; repeated Pair attributes = 7;
}
message Buckets {
  fixed64 from = 2; fixed64 at = 3; fixed64 count = 4; double sum = 5; repeated fixed64 counts = 6;
  repeated double bounds = 7; repeated Pair attributes = 9;
}
message Gauge { repeated Point points = 1; }
message Sum { repeated Point points = 1; int32 temporality = 2; bool monotonic = 3; }
message Histogram { repeated Buckets points = 1; int32 temporality = 2; }
message Metric {
  string name = 1; string description = 2; string unit = 3;
  oneof data { Gauge gauge = 5; Sum sum = 7; Histogram histogram = 9; }
}
message ScopeSpans { Scope scope = 1; repeated Span spans = 2; }
message ResourceSpans { Resource resource = 1; repeated ScopeSpans scopes = 2; }
message Traces { repeated ResourceSpans resources = 1; }
message ScopeMetrics { repeated Metric metrics = 2; }
message ResourceMetrics { Resource resource = 1; repeated ScopeMetrics scopes = 2; }
message Metrics { repeated ResourceMetrics resources = 1; }`;

const { root } = protobuf.parse(PROTO, { keepCase: true });
/** Numbers of 64 bits are text, which is exact; absent fields have the defaults of their types. */
const READING = { longs: String, bytes: String, defaults: true, oneofs: true } as const;

export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it has none. */
  readonly parentId: string;
  readonly traceState: string;
  readonly name: string;
  /** 1: internal, 2: server. */
  readonly kind: number;
  /** Milliseconds since 1970. */
  readonly from: number;
  readonly until: number;
  readonly attributes: Attributes;
  /** 0: unset, 2: error. */
  readonly status: number;
  readonly statusMessage: string;
  readonly resource: Attributes;
  readonly scope: string;
}

export interface ReceivedPoint {
  readonly attributes: Attributes;
  readonly from: number;
  readonly at: number;
  /** Of a gauge or a sum. */
  readonly value: number;
  /** Of a histogram. */
  readonly count: number;
  readonly sum: number;
  readonly counts: readonly number[];
  readonly bounds: readonly number[];
}

export interface ReceivedMetric {
  readonly name: string;
  readonly description: string;
  readonly unit: string;
  readonly type: 'gauge' | 'sum' | 'histogram';
  readonly monotonic: boolean;
  /** 2: cumulative. */
  readonly temporality: number;
  readonly points: readonly ReceivedPoint[];
  readonly resource: Attributes;
}

/** What protobufjs makes of the messages above, as far as it differs. */
interface Pairs {
  readonly attributes: readonly { readonly key: string; readonly value: Attributes & { readonly value: string } }[];
}
type RawSpan = Omit<ReceivedSpan, 'from' | 'until' | 'attributes' | 'status'> &
  Pairs & { readonly from: string; readonly until: string; readonly status: { code: number; message: string } | null };
type RawPoint = Pairs &
  Readonly<Record<'from' | 'at', string>> & {
    readonly double?: number;
    readonly integer?: string;
    readonly count?: string;
    readonly sum?: number;
    readonly counts?: readonly string[];
    readonly bounds?: readonly number[];
  };
type RawData = Partial<Pick<ReceivedMetric, 'temporality' | 'monotonic'>> & { readonly points: readonly RawPoint[] };
type RawMetric = Pick<ReceivedMetric, 'name' | 'description' | 'unit'> &
  Readonly<Record<ReceivedMetric['type'], RawData>> & { readonly data: ReceivedMetric['type'] };
interface Resource<T> {
  readonly resource: Pairs;
  readonly scopes: readonly T[];
}

function resourcesIn<T>(type: string, body: Buffer): readonly Resource<T>[] {
  const found = root.lookupType(type);
  return (found.toObject(found.decode(body), READING) as { readonly resources: readonly Resource<T>[] }).resources;
}

export function spansIn(body: Buffer): ReceivedSpan[] {
  const all = resourcesIn<{ readonly scope: { readonly name: string }; readonly spans: readonly RawSpan[] }>(
    'Traces',
    body,
  );
  return all.flatMap(({ resource, scopes }) =>
    scopes.flatMap(({ scope, spans }) =>
      spans.map((span) => ({
        ...span,
        traceId: hex(span.traceId),
        spanId: hex(span.spanId),
        parentId: hex(span.parentId),
        from: ms(span.from),
        until: ms(span.until),
        attributes: attributesOf(span),
        status: span.status?.code ?? 0,
        statusMessage: span.status?.message ?? '',
        resource: attributesOf(resource),
        scope: scope.name,
      })),
    ),
  );
}

export function metricsIn(body: Buffer): ReceivedMetric[] {
  return resourcesIn<{ readonly metrics: readonly RawMetric[] }>('Metrics', body).flatMap(({ resource, scopes }) =>
    scopes.flatMap(({ metrics }) =>
      metrics.map((metric) => {
        const { data: type, name, description, unit } = metric;
        const { temporality = 0, monotonic = false, points } = metric[type];
        return {
          name,
          description,
          unit,
          type,
          temporality,
          monotonic,
          points: points.map(pointOf),
          resource: attributesOf(resource),
        };
      }),
    ),
  );
}

function pointOf(point: RawPoint): ReceivedPoint {
  const { double, integer, count = 0, sum = 0, counts = [], bounds = [] } = point;
  const value = double === undefined ? NaN : double + Number(integer);
  const times = { from: ms(point.from), at: ms(point.at) };
  return {
    ...times,
    attributes: attributesOf(point),
    value,
    count: Number(count),
    sum,
    counts: counts.map(Number),
    bounds,
  };
}

function attributesOf({ attributes }: Pairs): Attributes {
  const read = ({ value: kind, ...value }: Pairs['attributes'][number]['value']): string | number | boolean =>
    kind === 'i' ? Number(value[kind]) : (value[kind] ?? '');
  return Object.fromEntries(attributes.map(({ key, value }) => [key, read(value)]));
}

function hex(base64: string): string {
  return Buffer.from(base64, 'base64').toString('hex');
}

function ms(nanoseconds: string): number {
  return Number(nanoseconds) / 1e6;
}
