/** OTLP’s two requests, read with the field numbers of opentelemetry-proto. */
import { bytes, double, fieldsOf, integer, message, messages, packed, text, type Fields } from './protobuf.js';

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

export function spansIn(body: Buffer): ReceivedSpan[] {
  return messages(fieldsOf(body), 1).flatMap((resourceSpans) => {
    const resource = attributesOf(message(resourceSpans, 1), 1);
    return messages(resourceSpans, 2).flatMap((scopeSpans) => {
      const scope = text(message(scopeSpans, 1), 1);
      return messages(scopeSpans, 2).map((span) => ({
        traceId: bytes(span, 1).toString('hex'),
        spanId: bytes(span, 2).toString('hex'),
        traceState: text(span, 3),
        parentId: bytes(span, 4).toString('hex'),
        name: text(span, 5),
        kind: Number(integer(span, 6)),
        from: ms(integer(span, 7)),
        until: ms(integer(span, 8)),
        attributes: attributesOf(span, 9),
        statusMessage: text(message(span, 15), 2),
        status: Number(integer(message(span, 15), 3)),
        resource,
        scope,
      }));
    });
  });
}

export function metricsIn(body: Buffer): ReceivedMetric[] {
  return messages(fieldsOf(body), 1).flatMap((resourceMetrics) => {
    const resource = attributesOf(message(resourceMetrics, 1), 1);
    return messages(resourceMetrics, 2).flatMap((scope) => messages(scope, 2).map((each) => metricOf(each, resource)));
  });
}

const TYPES = { 5: 'gauge', 7: 'sum', 9: 'histogram' } as const;

function metricOf(metric: Fields, resource: Attributes): ReceivedMetric {
  const about = { name: text(metric, 1), description: text(metric, 2), unit: text(metric, 3), resource };
  for (const [number, type] of Object.entries(TYPES)) {
    const data = messages(metric, Number(number))[0];
    if (!data) continue;
    return {
      ...about,
      type,
      temporality: Number(integer(data, 2)),
      monotonic: integer(data, 3) === 1n,
      points: messages(data, 1).map(type === 'histogram' ? histogramPoint : numberPoint),
    };
  }
  throw new Error(`${about.name} has no data`);
}

function numberPoint(point: Fields): ReceivedPoint {
  const value = point.has(6) ? Number(integer(point, 6)) : double(point, 4);
  return { ...timesOf(point), attributes: attributesOf(point, 7), value, count: 0, sum: 0, counts: [], bounds: [] };
}

function histogramPoint(point: Fields): ReceivedPoint {
  return {
    ...timesOf(point),
    attributes: attributesOf(point, 9),
    value: NaN,
    count: Number(integer(point, 4)),
    sum: double(point, 5),
    counts: packed(point, 6, (all, at) => Number(all.readBigUInt64LE(at))),
    bounds: packed(point, 7, (all, at) => all.readDoubleLE(at)),
  };
}

function timesOf(point: Fields): { from: number; at: number } {
  return { from: ms(integer(point, 2)), at: ms(integer(point, 3)) };
}

function attributesOf(fields: Fields, number: number): Attributes {
  return Object.fromEntries(messages(fields, number).map((pair) => [text(pair, 1), valueOf(message(pair, 2))]));
}

function valueOf(value: Fields): string | number | boolean {
  if (value.has(2)) return integer(value, 2) === 1n;
  if (value.has(3)) return Number(BigInt.asIntN(64, integer(value, 3)));
  return value.has(4) ? double(value, 4) : text(value, 1);
}

function ms(nanoseconds: bigint): number {
  return Number(nanoseconds) / 1e6;
}
