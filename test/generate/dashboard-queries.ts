/** The parts of the dashboard’s panels: a query, and how its result is shown. */

export interface Panel {
  readonly title: string;
  readonly description: string;
  /** A unit of Grafana's. */
  readonly unit: 's' | 'bytes' | 'percentunit' | 'reqps' | 'short' | 'cps';
  readonly queries: readonly { readonly expr: string; readonly legend: string }[];
  /** The end of the axis; absent: the largest value. */
  readonly max?: number;
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** The chosen sidecars and models. The sidecar’s own metrics and OpenTelemetry’s name the model’s label differently. */
export const OURS = 'instance=~"$instance",model=~"$model"';
export const HERE = 'instance=~"$instance"';
/** Of metrics whose names other services have too, also beside this one: their callers’ telemetry, a proxy, Prometheus. */
export const SHARED = `job="ra-sidecar",${HERE}`;
export const OTEL = `${SHARED},gen_ai_request_model=~"$model"`;
/** Requests that use a model, refused before their model was checked or not. */
export const WORK = `${SHARED},http_route=~"/v1/(chat/completions|responses|decisions|systemone)"`;

/** Grafana’s own choice of a counter’s window: at least four scrapes. */
export const WINDOW = '[$__rate_interval]';

export const rate = (name: string, where: string, by: string): string =>
  `sum by (${by}) (rate(${name}{${where}}${WINDOW}))`;

export const gauge = (name: string, where: string, by: string): string => `sum by (${by}) (${name}{${where}})`;

/** Of values that cannot be added up over sidecars. */
export const largest = (name: string, where: string, by: string): string => `max by (${by}) (${name}{${where}})`;

/** Lines for quantiles of a histogram. */
export function quantiles(name: string, where: string, by: string, which: readonly number[]): Panel['queries'] {
  const labels = by === '' ? '' : `{{${by}}} `;
  return which.map((q) => ({
    expr: `histogram_quantile(${q}, ${rate(`${name}_bucket`, where, by === '' ? 'le' : `${by}, le`)})`,
    legend: `${labels}p${q * 100}`,
  }));
}

export const one = (expr: string, legend: string): Panel['queries'] => [{ expr, legend }];
