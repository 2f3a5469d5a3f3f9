/**
 * What the Gateway API’s inference extension accepts, after the types in its source (api/v1/inferencepool_types.go from
 * release 1.5 on; apix/config/v1alpha1/endpointpickerconfig_types.go, also of llm-d’s router). No package has these.
 * Every object is closed here, so a misspelt field, or one of another version, is an error.
 */
type Schema = Readonly<Record<string, unknown>>;

function closed(properties: Readonly<Record<string, Schema>>, required: readonly string[]): Schema {
  return { type: 'object', properties, required, additionalProperties: false };
}

const TEXT = { type: 'string', minLength: 1 };
const NAME = { type: 'string', minLength: 1, maxLength: 253 };
const PORT = closed({ number: { type: 'integer', minimum: 1, maximum: 65535 } }, ['number']);
const LABELS = {
  type: 'object',
  additionalProperties: {
    type: 'string',
    maxLength: 63,
    pattern: '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$',
  },
};

/**
 * Stricter than Kubernetes, which lets `endpointPickerRef` be absent from release 1.5 on (gateways still require it),
 * and its port if it is not a Service.
 */
export const INFERENCE_POOL = closed(
  {
    apiVersion: { const: 'inference.networking.k8s.io/v1' },
    kind: { const: 'InferencePool' },
    metadata: closed({ name: NAME, namespace: NAME, labels: LABELS }, ['name']),
    spec: closed(
      {
        selector: closed({ matchLabels: LABELS }, ['matchLabels']),
        targetPorts: { type: 'array', items: PORT, minItems: 1, maxItems: 8, uniqueItems: true },
        appProtocol: { enum: ['http', 'kubernetes.io/h2c'] },
        endpointPickerRef: closed(
          {
            group: { type: 'string', maxLength: 253, pattern: '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$' },
            kind: { type: 'string', minLength: 1, maxLength: 63, pattern: '^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$' },
            name: NAME,
            port: PORT,
            failureMode: { enum: ['FailOpen', 'FailClose'] },
          },
          ['name', 'port'],
        ),
      },
      ['selector', 'targetPorts', 'endpointPickerRef'],
    ),
  },
  ['apiVersion', 'kind', 'metadata', 'spec'],
);

/**
 * Those that are used here, as release 1.5 registers them. In 1.4 the extractor was `model-server-protocol-metrics`.
 */
const PLUGINS = [
  'metrics-data-source',
  'core-metrics-extractor',
  'queue-scorer',
  'kv-cache-utilization-scorer',
  'prefix-cache-scorer',
  'utilization-detector',
];

const REFERENCE = closed({ pluginRef: TEXT }, ['pluginRef']);

/** What the chart passes to the picker. Each plugin reads its own `parameters`. */
export const PICKER_CONFIG = closed(
  {
    apiVersion: { enum: ['inference.networking.x-k8s.io/v1alpha1', 'llm-d.ai/v1alpha1'] },
    kind: { const: 'EndpointPickerConfig' },
    featureGates: { type: 'array', items: TEXT },
    plugins: {
      type: 'array',
      minItems: 1,
      items: closed({ name: TEXT, type: { enum: PLUGINS }, parameters: { type: 'object' } }, ['type']),
    },
    schedulingProfiles: {
      type: 'array',
      minItems: 1,
      items: closed(
        {
          name: TEXT,
          plugins: { type: 'array', items: closed({ pluginRef: TEXT, weight: { type: 'number' } }, ['pluginRef']) },
        },
        ['name', 'plugins'],
      ),
    },
    // In 1.4 it had the detector’s parameters itself, and a file with a field that it does not know ends the picker.
    saturationDetector: REFERENCE,
    dataLayer: closed(
      {
        sources: {
          type: 'array',
          items: closed({ pluginRef: TEXT, extractors: { type: 'array', items: REFERENCE } }, [
            'pluginRef',
            'extractors',
          ]),
        },
      },
      ['sources'],
    ),
  },
  ['apiVersion', 'kind', 'plugins', 'schedulingProfiles'],
);
