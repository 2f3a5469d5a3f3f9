import type { RemoteSetup } from '../protocol/setup.js';
import type { Adapter, AdapterParts } from './adapter.js';
import { LlamaServer } from './llama-server.js';
import { Sglang } from './sglang.js';
import { Vllm } from './vllm.js';

const ADAPTERS: Readonly<Record<RemoteSetup['kind'], new (parts: AdapterParts) => Adapter>> = {
  'llama-server': LlamaServer,
  vllm: Vllm,
  sglang: Sglang,
};

/** The adapter for a kind of server. */
export function adapterFor(parts: AdapterParts): Adapter {
  return new ADAPTERS[parts.setup.kind](parts);
}
