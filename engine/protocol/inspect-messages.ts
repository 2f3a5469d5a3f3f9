/**
 * The messages between the sidecar's commands and an inspector: a process that is forked to inspect the machine or
 * model files, or to download one, because the sidecar's own process loads no native code and no node-llama-cpp. Each
 * answers one question and exits. It may send `progress` before its answer; one that ends without an answer was crashed
 * by the inspected file.
 */
import type { EngineSetup, RemoteSetup, TemplateSettings } from './setup.js';

export const INSPECT_VERSION = 2;

/** The parts of an engine's setup that decide how a model is loaded and how much memory it needs. */
export type SizingSetup = Pick<
  EngineSetup,
  | 'file'
  | 'kind'
  | 'seats'
  | 'contextPerSeat'
  | 'threads'
  | 'cores'
  | 'gpu'
  | 'gpuLayers'
  | 'flashAttention'
  | 'prefillTokensPerStep'
  | 'swaFull'
  | 'kv'
  | 'checkpoints'
  | 'speculation'
  | 'prefixCache'
  | 'projector'
> &
  Partial<Pick<EngineSetup, 'prefixReuse'>>;

/** What the start of a model whose server is elsewhere needs of its setup. */
export type ServedModel = Pick<EngineSetup, 'file' | 'kind' | 'template' | 'seats' | 'contextPerSeat'>;

/** Bytes of each kind of memory. */
export interface Bytes {
  readonly memory: number;
  readonly gpuMemory: number;
}

export interface Question {
  readonly machine: { readonly gpu: EngineSetup['gpu'] };
  /** Evaluates a step of this model: only that shows whether a GPU's kernels run with its driver. */
  readonly compute: { readonly gpu: EngineSetup['gpu']; readonly file: string };
  /** Only headers; no native code is loaded. */
  readonly heads: { readonly files: readonly string[] };
  readonly model: {
    readonly setup: SizingSetup;
    /** How it is prompted. Absent: by its file. */
    readonly template?: TemplateSettings;
    /**
     * Load the weights too, which finds problems that a header does not show. They are mapped, and released at the end.
     */
    readonly load: boolean;
    /** Memory that other models of the same configuration will take; subtracted from the free memory. */
    readonly taken: Bytes;
    /** Bytes of memory to assume in place of the free memory. */
    readonly memory?: number;
    /** The same for a GPU, which this machine may lack: the model's layers are then assumed to be on one. */
    readonly gpuMemory?: number;
  };
  /** Asks an external server once what an engine process asks it at its start. */
  readonly server: { readonly model: ServedModel; readonly remote: RemoteSetup };
  /** `uri`: whatever node-llama-cpp resolves. Nothing that exists in `dir` is overwritten. */
  readonly fetch: { readonly uri: string; readonly dir: string };
  /** Writes `out`, a file without weights, from what `file` has of its tokenizer and template. */
  readonly vocabulary: { readonly file: string; readonly out: string };
}

export interface Answer {
  readonly machine: MachineFacts;
  readonly compute: Computed;
  readonly heads: readonly HeadReport[];
  readonly model: ModelReport;
  readonly server: ServerReport;
  readonly fetch: Fetched;
  readonly vocabulary: VocabularyWritten;
}

/** `problem`: one line for the operator. */
export type VocabularyWritten =
  { readonly kind: 'written'; readonly bytes: number } | { readonly kind: 'refused'; readonly problem: string };

/** Whether a server can serve a model as it is set up. `warnings`, `problem`: lines for the operator. */
export type ServerReport =
  | { readonly kind: 'serves'; readonly warnings: readonly string[] }
  | { readonly kind: 'unusable'; readonly problem: string };

/** `ms`: what the step took, the first one of the process. */
export interface Computed {
  readonly ms: number;
}

export interface MachineFacts {
  /** Backend that an engine with this setting uses; false: CPU. */
  readonly gpu: string | false;
  /** Backends whose libraries are on this machine; false: CPU, which always is. */
  readonly available: readonly (string | false)[];
  readonly devices: readonly string[];
  /** Whether llama.cpp's binaries are the package's or were built on this machine. */
  readonly build: 'prebuilt' | 'localBuild';
  /** SHA-256 of the sources of ra-engine, hex. */
  readonly addon: string;
  /** llama.cpp's list of the CPU features that it was built for. */
  readonly features: string;
  /** Logical cores that this process may use. */
  readonly cores: number;
  /** Set if a CPU quota limits them: its cores, and those that the process may run on. */
  readonly quota?: { readonly cores: number; readonly present: number };
  readonly memory: { readonly total: number; readonly free: number };
  /** Undefined if no GPU is used. */
  readonly gpuMemory: { readonly total: number; readonly free: number } | undefined;
}

/** The facts in a file's header. */
export interface HeadFacts {
  readonly bytes: number;
  /** `general.name`; absent: the file names nothing. */
  readonly name?: string;
  readonly architecture: string;
  /** For example `Q4_K_M`; absent: the file does not say. */
  readonly quantisation?: string;
  /** Tokens that it was trained for; absent: not in the file. */
  readonly trainedContext?: number;
}

/** `problem`: one line that follows the model's name. */
export type HeadReport =
  { readonly kind: 'head'; readonly head: HeadFacts } | { readonly kind: 'bad'; readonly problem: string };

/** A check, in the order of execution. */
export interface Finding {
  readonly what:
    | 'file'
    | 'architecture'
    | 'context'
    | 'cores'
    | 'memory'
    | 'tensors'
    | 'tokenizer'
    | 'chat'
    | 'tool calls'
    | 'decisions'
    | 'embeddings'
    | 'rerank'
    | 'images';
  readonly ok: boolean;
  /** If it fails, the model cannot be served as configured. */
  readonly needed: boolean;
  /** One line for the operator. */
  readonly says: string;
}

/** The memory of one kind that a model needs, and that is available; bytes. */
export interface Fit {
  readonly weights: number;
  /** The part of the weights that each engine repacks for itself, also with the same file. */
  readonly repacked: number;
  /** KV memory of one seat of the configured length. */
  readonly perSeat: number;
  /** Buffers for one step. */
  readonly compute: number;
  /** For saved states, where past state cannot be truncated; absent: none. */
  readonly checkpoints?: number;
  /** For prefixes of overwritten sequences; absent: none. */
  readonly prefixCache?: number;
  /** At most, for grammars: in all, and for each seat besides; absent: none. */
  readonly grammars?: { readonly stores: number; readonly perSeat: number };
  /** Of all configured seats. */
  readonly total: number;
  /** Available memory: free memory less the reserve and other models' memory. */
  readonly usable: number;
}

/** How many seats fit at a context of this many tokens each. */
export interface SizeRow {
  readonly contextPerSeat: number;
  /** Bytes of KV memory of one seat, over all kinds of memory. */
  readonly perSeat: number;
  /** 0: not even one; at most the seats that an engine can have. */
  readonly seats: number;
}

/** How an engine would load the model. */
export interface LoadFacts extends Pick<MachineFacts, 'build' | 'addon'> {
  readonly gpu: string | false;
  readonly threads: number;
  readonly gpuLayers: number;
  readonly layers: number;
  readonly flashAttention: boolean | 'auto';
}

export interface ModelReport {
  /** Undefined if the file cannot be read as a model. */
  readonly head: HeadFacts | undefined;
  readonly load: LoadFacts | undefined;
  readonly memory: Fit | undefined;
  /** Undefined also where no GPU is used. */
  readonly gpuMemory: Fit | undefined;
  readonly sizes: readonly SizeRow[];
  readonly findings: readonly Finding[];
}

export type Fetched =
  /** `fresh`: false if a file of the same name and size existed already. */
  | { readonly kind: 'fetched'; readonly file: string; readonly bytes: number; readonly fresh: boolean }
  /** One line that follows the address. */
  | { readonly kind: 'refused'; readonly problem: string };

export type Asked = keyof Question;

export type ToInspector = {
  [Kind in Asked]: { readonly v: number; readonly kind: Kind; readonly question: Question[Kind] };
}[Asked];

export type FromInspector = { readonly v: number } & (
  | { readonly kind: 'progress'; readonly done: number; readonly total: number }
  | { readonly kind: 'answer'; readonly answer: Answer[Asked] }
  /** One line for the operator. */
  | { readonly kind: 'failed'; readonly reason: string }
);
