import type { ModelConfig } from './model-types.js';
import type { Config } from './types.js';
import { isOpen, isPlainUrl } from './urls.js';

/** URLs of a model's servers; none: it is reached over a socket, or is our own engine. */
export function serverUrls({ engine }: Pick<ModelConfig, 'engine'>): readonly string[] {
  return ([] as string[]).concat(engine.url ?? []);
}

/** Rules between the settings of external engine servers; see `contradictions` in checks.ts. */
export function engineContradictions({ models, decisions }: Config): string[] {
  return models.flatMap((model, i) => problemsOf(model, decisions.isolate).map((problem) => `models[${i}].${problem}`));
}

function problemsOf(model: ModelConfig, isolate: boolean): string[] {
  const { engine, kind, replicas, vision, prefixCache } = model;
  const { url, socket, model: name, secretFile, tokens } = engine;
  if (engine.kind === 'llama.cpp') {
    const set = Object.entries({ url, socket, model: name, secretFile, tokens }).filter(
      ([, value]) => value !== undefined,
    );
    return set.map(([name]) => `engine.${name} must not be set where engine.kind is llama.cpp`);
  }
  const urls = serverUrls(model);
  return [
    ...((url === undefined) === (socket === undefined) ? ['engine must have either url or socket'] : []),
    ...(urls.every(isPlainUrl) ? [] : ['engine.url must be a URL without credentials']),
    ...(new Set(urls).size === urls.length ? [] : ['engine.url must not name a server twice']),
    ...(secretFile !== undefined && urls.some((one) => URL.canParse(one) && isOpen(one))
      ? ['engine.url must be https, or name a loopback address, where engine.secretFile is set']
      : []),
    ...(replicas === 1
      ? []
      : ['replicas must be 1 where engine.kind is not llama.cpp: list several servers in engine.url']),
    ...(engine.kind === 'sglang' && prefixCache.scope !== 'all'
      ? ['prefixCache.scope must be all where engine.kind is sglang, which does not keep accounts apart']
      : []),
    ...(vision === undefined ? [] : ['vision must not be set where engine.kind is not llama.cpp']),
    ...(kind === 'decision' && isolate
      ? [
          'engine.kind must be llama.cpp for a decision model unless decisions.isolate is false: no external server isolates',
        ]
      : []),
  ];
}

/** See `hints` in checks.ts. */
export function engineHints({ models }: Config): string[] {
  return models.flatMap((model, i) =>
    serverUrls(model).some(isOpen)
      ? [`models[${i}].engine.url is plain HTTP: prompts and replies cross the network unencrypted`]
      : [],
  );
}
