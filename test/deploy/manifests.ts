/** The manifests of deploy/kubernetes as objects, and what tests read from them. */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import { applyPatch, type Operation } from 'rfc6902';
import { sourceRoot } from '../support/source-root.js';

export const FOLDER = join(sourceRoot, 'deploy/kubernetes');

/** Any part of a manifest. */
export type Node = string | number | boolean | null | readonly Node[] | { readonly [name: string]: Node };

export interface Manifest {
  /** From deploy/kubernetes. */
  readonly file: string;
  readonly kind: string;
  readonly apiVersion: string;
  readonly object: Node;
}

/** A file's documents. */
export function documents(file: string): Node[] {
  const text = readFileSync(join(FOLDER, file), 'utf8');
  return text.split(/^---$/m).map((part) => parseYaml(part) as Node);
}

/** Files that only change objects, or generate them. */
const NO_OBJECTS = /values\.yaml$|(^|\/)(kustomization|patch)\.yaml$/;

/** Every object for Kubernetes, of all folders; values files of charts are none. */
export function manifests(): Manifest[] {
  const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.yaml'));
  return files
    .filter((file) => !NO_OBJECTS.test(file))
    .sort()
    .flatMap((file) =>
      documents(file).map((object) => ({
        file,
        kind: textAt(object, 'kind'),
        apiVersion: textAt(object, 'apiVersion'),
        object,
      })),
    );
}

/** The only object of a kind. */
export function manifest(kind: string, name = 'ra-sidecar'): Node {
  const found = manifests().filter(({ kind: other, object }) => other === kind && at(object, 'metadata.name') === name);
  const [one] = found;
  if (one === undefined || found.length > 1) throw new Error(`${found.length} of ${kind} ${name}`);
  return one.object;
}

/** Components that add a server to each sidecar. */
export const SERVERS = ['vllm', 'sglang'] as const;

/** Components of the kustomization, by their folders. */
export const COMPONENTS = ['deployment', 'several-gpus', 'store', ...SERVERS] as const;

/** What such a component makes of the StatefulSet. Throws if its patch does not apply. */
export function patched(component: (typeof COMPONENTS)[number]): Node {
  const object = structuredClone(manifest('StatefulSet'));
  const [patch] = documents(`${component}/patch.yaml`);
  for (const failure of applyPatch(object, patch as unknown as Operation[])) {
    if (failure !== null) throw failure;
  }
  return object;
}

/** The value at `path`, with list indexes among the names; undefined: there is none. */
export function at(node: Node | undefined, path: string): Node | undefined {
  let here: unknown = node;
  for (const name of path.split('.')) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = (here as Record<string, unknown>)[name];
  }
  return here as Node | undefined;
}

/** As {@link at}, for a text, a list or an object. Throws if it is something else. */
export function textAt(node: Node | undefined, path: string): string {
  const found = at(node, path);
  if (typeof found !== 'string') throw new Error(`no text at ${path}`);
  return found;
}

export function listAt(node: Node | undefined, path: string): readonly Node[] {
  const found = at(node, path);
  if (!Array.isArray(found)) throw new Error(`no list at ${path}`);
  return found as readonly Node[];
}

export function mapAt(node: Node | undefined, path: string): Readonly<Record<string, Node>> {
  const found = at(node, path);
  if (typeof found !== 'object' || found === null || Array.isArray(found)) throw new Error(`no object at ${path}`);
  return found as Readonly<Record<string, Node>>;
}

/** Which metric the endpoint picker reads for which purpose, by the values of its chart. */
export interface PickerSpecs {
  readonly queued: string;
  readonly running: string;
  readonly kvUsage: string;
  readonly cacheInfo: string;
  readonly lora: string;
}

/** From the chart's flags. */
export function flagSpecs(): PickerSpecs {
  const [values] = documents('inference/epp-flags-values.yaml');
  const flag = (name: string): string => textAt(values, `inferenceExtension.flags.${name}`);
  return {
    queued: flag('total-queued-requests-metric'),
    running: flag('total-running-requests-metric'),
    kvUsage: flag('kv-cache-usage-percentage-metric'),
    cacheInfo: flag('cache-info-metric'),
    lora: flag('lora-info-metric'),
  };
}

/** The configuration that the chart passes to the picker. */
export function pickerConfig(): Node {
  const [values] = documents('inference/epp-values.yaml');
  const file = textAt(values, 'inferenceExtension.pluginsConfigFile');
  const text = mapAt(values, 'inferenceExtension.pluginsCustomConfig')[file];
  if (typeof text !== 'string') throw new Error(`no ${file} in pluginsCustomConfig`);
  return parseYaml(text) as Node;
}

/** From the picker’s configuration of its default engine. */
export function engineSpecs(): PickerSpecs {
  const extractor = listAt(pickerConfig(), 'plugins').find((plugin) => at(plugin, 'type') === 'core-metrics-extractor');
  const name = textAt(extractor, 'parameters.defaultEngine');
  const engine = listAt(extractor, 'parameters.engineConfigs').find((one) => at(one, 'name') === name);
  return {
    queued: textAt(engine, 'queuedRequestsSpec'),
    running: textAt(engine, 'runningRequestsSpec'),
    kvUsage: textAt(engine, 'kvUsageSpec'),
    cacheInfo: textAt(engine, 'cacheInfoSpec'),
    lora: textAt(engine, 'loraSpec'),
  };
}
