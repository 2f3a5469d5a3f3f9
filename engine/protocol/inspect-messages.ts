/**
 * The messages between the sidecar's commands and an inspector: a process that is forked to look at the machine, at model
 * files, or to fetch one, because no native code and no node-llama-cpp is loaded in the sidecar's own process. Each answers
 * one question and exits. It may send `progress` before its answer; one that ends without an answer was brought down by
 * what it looked at.
 */
import type { EngineSetup } from './messages.js';

export const INSPECT_VERSION = 1;

/** What of an engine's setup decides how a model is loaded and what it takes. */
export type SizingSetup = Pick<
  EngineSetup,
  'file' | 'kind' | 'seats' | 'contextPerSeat' | 'threads' | 'cores' | 'gpu' | 'flashAttention' | 'prefillTokensPerStep'
>;

/** Bytes of each kind of memory. */
export interface Bytes {
  readonly memory: number;
  readonly gpuMemory: number;
}

export interface Question {
  readonly machine: { readonly gpu: EngineSetup['gpu'] };
  /** Heads alone; no native code is loaded. */
  readonly heads: { readonly files: readonly string[] };
  readonly model: {
    readonly setup: SizingSetup;
    /** Load the weights too, which finds what a head does not show. They are mapped, and given back at the end. */
    readonly load: boolean;
    /** What other models of the same configuration will take; left out of what is free. */
    readonly taken: Bytes;
    /** Bytes of memory to reckon with in place of what is free. */
    readonly memory?: number;
  };
  /** `uri`: whatever node-llama-cpp resolves. Nothing that exists in `dir` is overwritten. */
  readonly fetch: { readonly uri: string; readonly dir: string };
}

export interface Answer {
  readonly machine: MachineFacts;
  readonly heads: readonly HeadReport[];
  readonly model: ModelReport;
  readonly fetch: Fetched;
}

export interface MachineFacts {
  /** Backend that an engine with this setting uses; false: CPU. */
  readonly gpu: string | false;
  /** Backends whose libraries are on this machine; false: CPU, which always is. */
  readonly available: readonly (string | false)[];
  readonly devices: readonly string[];
  /**
   * Whether the binaries came with the package, without engine/native, or were built here: with it, with another version's,
   * or (plain) without it.
   */
  readonly build: 'prebuilt' | 'localBuild' | 'outdatedBuild' | 'plainBuild';
  /** llama.cpp's own list of the CPU's features that it was built for. */
  readonly features: string;
  /** Logical cores that this process may use. */
  readonly cores: number;
  readonly memory: { readonly total: number; readonly free: number };
  /** Undefined: no GPU is used. */
  readonly gpuMemory: { readonly total: number; readonly free: number } | undefined;
}

/** What a file says of itself. */
export interface HeadFacts {
  readonly bytes: number;
  /** `general.name`; absent: the file names nothing. */
  readonly name?: string;
  readonly architecture: string;
  /** For example `Q4_K_M`; absent: the file does not say. */
  readonly quantisation?: string;
  /** Tokens that it was trained for; absent: the file does not say. */
  readonly trainedContext?: number;
}

/** `problem`: one line that goes on after the model's name. */
export type HeadReport =
  { readonly kind: 'head'; readonly head: HeadFacts } | { readonly kind: 'bad'; readonly problem: string };

/** Something that was looked at, in the order in which it was. */
export interface Finding {
  readonly what: 'file' | 'architecture' | 'cores' | 'memory' | 'tensors' | 'tokenizer' | 'chat' | 'decisions';
  readonly ok: boolean;
  /** Without it the model cannot be served as it is configured. */
  readonly needed: boolean;
  /** One line for the operator. */
  readonly says: string;
}

/** What a model takes of one kind of memory, and what there is; bytes. */
export interface Fit {
  readonly weights: number;
  /** Of these, what each engine holds for itself, whichever other has the same file. */
  readonly repacked: number;
  /** Past state of one seat of the configured length. */
  readonly perSeat: number;
  readonly compute: number;
  /** Of all configured seats. */
  readonly total: number;
  /** What may be used: what is free without the reserve and without what other models take. */
  readonly usable: number;
}

/** How many seats fit at a context of so many tokens each. */
export interface SizeRow {
  readonly contextPerSeat: number;
  /** Bytes of past state of one seat, of all kinds of memory. */
  readonly perSeat: number;
  /** 0: not even one. */
  readonly seats: number;
}

/** How an engine would load the model. */
export interface LoadFacts {
  readonly gpu: string | false;
  readonly threads: number;
  readonly gpuLayers: number;
  readonly layers: number;
  readonly flashAttention: boolean | 'auto';
}

export interface ModelReport {
  /** Undefined: the file cannot be read as a model. */
  readonly head: HeadFacts | undefined;
  readonly load: LoadFacts | undefined;
  readonly memory: Fit | undefined;
  /** Undefined also where no GPU is used. */
  readonly gpuMemory: Fit | undefined;
  readonly sizes: readonly SizeRow[];
  readonly findings: readonly Finding[];
}

export type Fetched =
  /** `fresh`: false when a file of the same name and size was there already. */
  | { readonly kind: 'fetched'; readonly file: string; readonly bytes: number; readonly fresh: boolean }
  /** One line that goes on after the address. */
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
