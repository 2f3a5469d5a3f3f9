/**
 * deploy/kubernetes against schemas: validators that other projects made of Kubernetes’ own OpenAPI and of the
 * definitions of KEDA, the Gateway API and the Prometheus operator. They ignore unknown fields, as the API server does
 * by default, so fields that they never read are reported too: these are misspelt.
 */
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute';
import { ScaledObject } from '@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject';
import { PodMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { StatefulSet } from 'kubernetes-models/apps/v1/StatefulSet';
import { Job } from 'kubernetes-models/batch/v1/Job';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { Namespace } from 'kubernetes-models/v1/Namespace';
import { PersistentVolumeClaim } from 'kubernetes-models/v1/PersistentVolumeClaim';
import { Service } from 'kubernetes-models/v1/Service';
import { Ajv, type ValidateFunction } from 'ajv';
import t from 'tap';
import { INFERENCE_POOL, PICKER_CONFIG } from './inference-schemas.js';
import { COMPONENTS, manifest, manifests, patched, pickerConfig, type Node } from './manifests.js';

/** The interface of the packages’ classes: made for an object; `validate` throws if it does not fit its schema. */
interface Kind {
  readonly apiVersion: string;
  readonly prototype: { validate(this: unknown): void };
}

const KINDS: Readonly<Record<string, Kind>> = {
  Deployment,
  HTTPRoute,
  HorizontalPodAutoscaler,
  Job,
  Namespace,
  PersistentVolumeClaim,
  PodDisruptionBudget,
  PodMonitor,
  ScaledObject,
  Service,
  StatefulSet,
};

const ajv = new Ajv({ allErrors: true });
/** No package has its definition. */
const inferencePool = ajv.compile(INFERENCE_POOL);

function reported(check: ValidateFunction, object: unknown): string[] {
  return check(object) ? [] : [ajv.errorsText(check.errors)];
}

/** The same value; each path of it that is read is added to `seen`. */
function watched(value: unknown, seen: Set<string>, path = ''): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return new Proxy(value, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name);
      if (typeof name !== 'string') return found;
      seen.add(`${path}.${name}`);
      return watched(found, seen, `${path}.${name}`);
    },
  });
}

function pathsOf(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => [`${path}.${name}`, ...pathsOf(inner, `${path}.${name}`)]);
}

/** The problems of an object, each in a few words. */
function problemsOf(kind: string, object: Node): string[] {
  if (kind === 'InferencePool') return reported(inferencePool, object);
  const known = KINDS[kind];
  if (known === undefined) return [`no schema of ${kind}`];
  const seen = new Set<string>();
  const unknown = (): string[] => pathsOf(object).filter((path) => !seen.has(path));
  try {
    known.prototype.validate.call(watched(object, seen));
  } catch (error) {
    return [(error as Error).message, ...unknown()];
  }
  return unknown();
}

t.test('every object fits its schema and has no unknown field', async (t) => {
  for (const { file, kind, apiVersion, object } of manifests()) {
    if (kind !== 'InferencePool') t.equal(KINDS[kind]?.apiVersion, apiVersion, `${file}: ${kind}`);
    t.strictSame(problemsOf(kind, object), [], `${file}: ${kind}`);
  }
  manifest('InferencePool');
});

t.test('the picker’s configuration fits its types', async (t) => {
  const check = ajv.compile(PICKER_CONFIG);
  const config = pickerConfig();
  t.strictSame(reported(check, config), []);
  const text = JSON.stringify(config);
  t.match(reported(check, JSON.parse(text.replace('"dataLayer"', '"data"')))[0], /additional properties/);
  t.match(reported(check, JSON.parse(text.replace('"pluginRef"', '"plugin"')))[0], /required property 'pluginRef'/);
  t.match(reported(check, JSON.parse(text.replace('"weight":2', '"weight":"2"')))[0], /weight must be number/);
});

t.test('so does what each component makes of the StatefulSet', async (t) => {
  for (const component of COMPONENTS) {
    const kind = component === 'deployment' ? 'Deployment' : 'StatefulSet';
    t.strictSame(problemsOf(kind, patched(component)), [], component);
  }
  t.not(problemsOf('Deployment', manifest('StatefulSet')).length, 0, 'a StatefulSet is no Deployment');
});
