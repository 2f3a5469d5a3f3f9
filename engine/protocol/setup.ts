/** How an engine is set up, and its properties once it is ready. */
import type { HashedFile } from './file-key.js';

export type GpuBackend = 'cuda' | 'vulkan' | 'metal';

/** Sequences that one engine can have at most. */
export const MOST_SEATS = 256;

/**
 * What a model is for: `chat` and `decision` continue or score a prompt, `embedding` and `rerank` make a vector or a score of a whole
 * input.
 */
export type ModelKind = 'chat' | 'decision' | 'embedding' | 'rerank';

/** Whether a model's engine makes one vector or score of each input (engine/scheduler/pooling-loop.ts). */
export function isPooling(kind: ModelKind): kind is 'embedding' | 'rerank' {
  return kind === 'embedding' || kind === 'rerank';
}

/** How an engine is to be set up. */
export interface EngineSetup {
  /** Absolute path of a GGUF file. */
  readonly file: string;
  /**
   * The file's key and hash, as the sidecar found them: an engine refuses to load any other file. Absent: the engine hashes it, unless
   * they follow.
   */
  readonly weights?: HashedFile;
  /** The sidecar hashes the file while it loads, and sends `weights`: the engine is not ready before that. */
  readonly weightsFollow?: true;
  readonly kind: ModelKind;
  /** How it is prompted. Absent: by its file. */
  readonly template?: TemplateSettings;
  /** Parallel sequences; of a model that makes vectors or scores, jobs at once. */
  readonly seats: number;
  /** Tokens that one sequence can hold: prompt and completion together, or one input. */
  readonly contextPerSeat: number;
  /** Compute threads; 0: one for each of `cores`, else all cores but one (at least one) on a CPU. */
  readonly threads: number;
  /** The cores that it computes on, as in `0-3,8`. Absent: any. */
  readonly cores?: string;
  readonly gpu: 'auto' | GpuBackend | false;
  /** With `gpu: 'auto'`: backends that failed in earlier processes, and are not tried. Absent: none. */
  readonly failedBackends?: readonly GpuBackend[];
  /** Layers that a GPU computes, of which the output is one; the others stay on the CPU. Absent: all of them. */
  readonly gpuLayers?: number;
  /** auto: if it is faster, and if the backend supports it. */
  readonly flashAttention: 'auto' | boolean;
  /** Prompt tokens that all prefilling sequences together may add to one step. 0: by the backend. */
  readonly prefillTokensPerStep: number;
  /** Keep all cells of sliding windows, so that past state can be truncated at any position. Absent: false. */
  readonly swaFull?: boolean;
  /** Number formats of past state. Absent: f16. */
  readonly kv?: KvTypes;
  /** Saved states of a model whose past state cannot be truncated. `bytes`: host memory; absent: by the model and what is free. */
  readonly checkpoints?: { readonly bytes?: number };
  /** The projector of its images, which another process evaluates. Absent: its prompts have no images. */
  readonly projector?: {
    /** Path of a GGUF file, of which only the head is read. */
    readonly file: string;
    /** The most tokens of an image. */
    readonly maxTokens: number;
  };
  /**
   * Saved states of sequences that were overwritten. `bytes`: host memory; absent: by what is free, shared by so many `engines` whose
   * caches have no set size either (absent: this one alone). A state that was not used for `maxAgeMs` is dropped, in sequences too.
   * `beside`: other processes of the sidecar that may use the same GPU (absent: none). `shared`: other processes are to open the states.
   * Absent: nothing is saved, and nothing is dropped by age.
   */
  readonly prefixCache?: {
    readonly bytes?: number;
    readonly engines?: number;
    readonly beside?: number;
    readonly maxAgeMs: number;
    readonly shared?: boolean;
  };
  /** On a CPU: time that a step may spend on prompts beside running replies, in percent of what their next tokens take. */
  readonly prefillShare: number;
  /** On a GPU: the time that a step with its prompts is to take beside running replies, ms. Absent: 100. */
  readonly stepMs?: number;
  /** Which part of a new prompt is reused from the KV state of a sequence. */
  readonly prefixReuse: PrefixReuse;
  /** Absent: off. */
  readonly speculation?: Speculation;
  /**
   * While nothing runs, evaluate a reply as the conversation's next prompt will contain it, for a model whose past state cannot be
   * truncated. Absent: false.
   */
  readonly prefillAhead?: boolean;
  /** Time between two heartbeats, in ms. */
  readonly heartbeatMs: number;
  /** A server that computes in place of this machine. `file` then needs to hold the vocabulary alone. */
  readonly remote?: RemoteSetup;
  /** Refuse to load what does not fit into memory. Undefined if nothing is checked. */
  readonly memory?: {
    /** Bytes of other engines' weights: mapped from their files, so the kernel counts them as available. */
    readonly mappedElsewhere: number;
  };
}

/** A server of another project that computes a model's replies. */
export interface RemoteSetup {
  readonly kind: 'llama-server' | 'vllm' | 'sglang';
  /** Begins with http:// or https://, without a slash at its end. */
  readonly url: string;
  /** Path of a Unix socket to connect to in place of the URL's host. */
  readonly socket?: string;
  /** Path of a file whose first line is sent as a bearer token. */
  readonly secretFile?: string;
  /** What the server calls the model; absent: the only one that it has. */
  readonly model?: string;
  /** Tokens, prompts and replies together, that may run at once; absent: seats times their context. */
  readonly tokens?: number;
  /** How long a cancelled reply is awaited before its seat is used again, ms. */
  readonly cancelWaitMs: number;
  /** How long a request may be without a first token or progress of its prompt, and a question without its answer, ms. */
  readonly silentMs: number;
  /** How long a reply may be without a further token, ms. */
  readonly tokenMs: number;
}

/** Number formats of the keys and values that attention keeps. */
export interface KvTypes {
  readonly keys: KvType;
  readonly values: KvType;
}

export type KvType = 'f16' | 'q8_0' | 'q4_0';

/**
 * auto: a job that runs alone reuses only state that equals, bit for bit, what it would compute itself, so that its
 * result is the same; one beside others, whose digits depend on the batch anyway, reuses every shared token. any:
 * always every shared token. off: nothing.
 */
export type PrefixReuse = 'auto' | 'any' | 'off';

/**
 * auto: a reply's next tokens are drafted from its prompt and itself, and several are computed in one decode where that is
 * expected to pay. off: each decode computes one token of a reply.
 */
export type Speculation = 'auto' | 'off';

/** The engine's properties once it is ready. */
export interface EngineFacts {
  readonly seats: number;
  readonly contextPerSeat: number;
  /** What the server that computes holds of all seats together. Absent: a context for each seat. */
  readonly tokens?: number;
  readonly vocabulary: number;
  /** SHA-256 of the weights file, hex. */
  readonly weightVersion: string;
  /**
   * Identifies tokenizer and template (engine/prompt/prompt-parts.ts): a prompt made with others must not be computed. Absent:
   * it is not known, and any prompt is taken.
   */
  readonly promptVersion?: string;
  /** Numbers of a vector; 1 of a score. Of a model that makes vectors or scores; absent: it makes none. */
  readonly width?: number;
  /** What a score is; absent: it makes none. */
  readonly scores?: ScoreScale;
  readonly threads: number;
  /** Backend in use; false: CPU. Of an external server, its kind. */
  readonly gpu: string | false;
  /** A cancelled job keeps its seats until `cancelled`. Absent: they are free at once. */
  readonly confirmsCancels?: true;
  /** Bytes of weights that the engine repacked for itself and are not mapped (memory/estimate.ts); absent: none. */
  readonly repackedBytes?: number;
  /** The bound of its prefix cache; absent: it has none. */
  readonly prefixCacheBytes?: number;
  /**
   * A hash of the weights, the KV type, and everything else that its states depend on. Processes with equal hashes can
   * restore each other's states. Absent: it saves no states.
   */
  readonly states?: string;
  /** What an operator should change, one line each, though the model is served. Absent: nothing. */
  readonly warnings?: readonly string[];
}

/** A reranker's scores: `logit`, any number; `probability`, 0 to 1, where the model's own last layer makes these. */
export type ScoreScale = 'logit' | 'probability';

/** How a model is prompted, where the operator says otherwise than its file. */
export interface TemplateSettings {
  /** Jinja source to use in place of the file's own chat template. */
  readonly chatTemplate?: string;
  /** How it calls tools: `auto`, `json`, `none`, or the name of a format. Absent: `auto`. */
  readonly toolFormat?: string;
}

/** Printable ASCII: other bytes cannot be in a header. */
const KEY = /^[\x21-\x7e]{1,4096}$/;

/** The key of an external server in the text of its file: the first line. Undefined if that is none. */
export function serverKey(text: string): string | undefined {
  const key = (text.split('\n', 1)[0] ?? '').trim();
  return KEY.test(key) ? key : undefined;
}
