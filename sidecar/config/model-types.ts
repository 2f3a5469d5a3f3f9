import type { TOOL_FORMATS } from './model-schema.js';

type KvType = 'f16' | 'q8_0' | 'q4_0';

/** A GPU by its index, its UUID or the UUID of a MIG instance. */
export type Device = number | string;

/** One engine process of a model. A field that is absent has the model's value. */
export interface ReplicaConfig {
  /** The devices that it sees: several share the layers. Absent: all that there are. */
  readonly devices?: Device | readonly Device[];
  readonly seats?: number;
  readonly contextPerSeat?: number;
  readonly threads?: number;
  readonly cores?: string;
}

/** What encodes a model's images. */
export interface VisionConfig {
  /** Path of a GGUF file. */
  readonly projector: string;
  /** Of a request. */
  readonly maxImages: number;
  /** Of an image. */
  readonly maxPixels: number;
  /** Absent: by the projector. */
  readonly maxTokensPerImage?: number;
  /** 0: one for each of `cores`, else all cores but one. */
  readonly threads: number;
  readonly cores?: string;
  /** The one that encodes. Absent: the CPU. */
  readonly devices?: Device;
  readonly cacheBytes: number;
}

/** What computes a model's replies. Other than `llama.cpp`: an external server, by `url` or `socket`. */
export interface EngineConfig {
  readonly kind: 'llama.cpp' | RemoteKind;
  readonly url?: string | readonly string[];
  readonly socket?: string;
  readonly model?: string;
  readonly secretFile?: string;
  readonly tokens?: number;
  readonly cancelWaitMs: number;
  readonly silentMs: number;
  readonly tokenMs: number;
}

export type RemoteKind = 'llama-server' | 'vllm' | 'sglang';

/** One model that is served. */
export interface ModelConfig {
  /** The id that callers use. */
  readonly id: string;
  readonly kind: 'chat' | 'decision';
  /** Path of a GGUF file, or `embedded`. */
  readonly file: string;
  readonly engine: EngineConfig;
  /** Path of a Jinja file; absent: the template in `file`. */
  readonly chatTemplate?: string;
  readonly toolFormat: (typeof TOOL_FORMATS)[number];
  /** Of each replica. */
  readonly seats: number;
  readonly contextPerSeat: number;
  /** Engine processes; `auto`: one for each device on which the model fits. */
  readonly replicas: number | 'auto' | readonly ReplicaConfig[];
  /** 0: one for each of `cores`, else all cores but one. */
  readonly threads: number;
  /** Cores that it computes on, as in `0-3,8`; absent: any. */
  readonly cores?: string;
  readonly gpu: 'auto' | 'cuda' | 'vulkan' | 'metal' | false;
  /** Of all layers, those that a GPU computes. */
  readonly gpuLayers: 'all' | number;
  readonly flashAttention: 'auto' | boolean;
  /** 0: by the backend. */
  readonly prefillTokensPerStep: number;
  readonly prefillAhead: boolean;
  readonly swaFull: boolean;
  readonly kv: { readonly keys: KvType; readonly values: KvType };
  /** `bytes`: absent: by the model's state and what is free. */
  readonly checkpoints: { readonly bytes?: number };
  /** `scope`: whether accounts share prefixes. `bytes`: absent: by what is free. */
  readonly prefixCache: { readonly scope: 'account' | 'all'; readonly bytes?: number; readonly maxAgeMs: number };
  /** Percent. */
  readonly prefillShare: number;
  readonly prefixReuse: 'auto' | 'any' | 'off';
  /** Absent: the model takes no images. */
  readonly vision?: VisionConfig;
  readonly load: 'eager' | 'lazy';
  /** Unloaded after this long without a request. 0: never. */
  readonly idleUnloadMs: number;
  /** Only keys of this cohort may call it; absent: open to all. */
  readonly cohort?: string;
  readonly ownedBy: string;
}
