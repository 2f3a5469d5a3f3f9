/**
 * Loads a tokenizer with the addon alone, without node-llama-cpp's modules: importing those takes half of the processor time of a prompt
 * host's start, and 30 MB. This interface of the addon is not public, so it is used only with the version whose source was read.
 */
import { dirname } from 'node:path';
import type { GgufFileInfo } from 'node-llama-cpp';
import { findAddon, loadAddon } from './addon-file.js';
import { LoadFailure } from './load-failure.js';
import { checkServed } from './addon.js';
import { readGgufFileInfo } from './package.js';

/** What a vocabulary is read from: node-llama-cpp's LlamaModel, or the addon's model. The code that made it disposes it. */
export interface TokenizerModel {
  readonly fileInfo: Pick<GgufFileInfo, 'metadata'>;
  readonly vocabularyType: string;
  readonly tokens: {
    readonly bos: number | null;
    readonly bosString: string | null;
    readonly eosString: string | null;
    readonly eos: number | null;
    readonly sep: number | null;
    readonly shouldPrependBosToken: boolean;
    readonly shouldAppendEosToken: boolean;
  };
  tokenize(text: string, special: boolean): Uint32Array | number[];
  getTokenAttributes(token: number): {
    readonly control: boolean;
    readonly userDefined: boolean;
    readonly unknown: boolean;
  };
  isEogToken(token: number | undefined): boolean;
  detokenize(tokens: readonly number[]): string;
  dispose(): Promise<void>;
}

/** The addon's model, as far as it is used here (node-llama-cpp's bindings/AddonTypes.d.ts, not exported). */
interface AddonModel {
  init(): Promise<boolean>;
  dispose(): Promise<void>;
  tokenize(text: string, special: boolean): Uint32Array;
  /** -1: it has none. */
  tokenBos(): number;
  tokenEos(): number;
  sepToken(): number;
  getTokenString(token: number): string;
  /** A sum of {@link ATTRIBUTE}. */
  getTokenAttributes(token: number): number;
  getVocabularyType(): number;
  shouldPrependBosToken(): boolean;
  shouldAppendEosToken(): boolean;
  isEogToken(token: number): boolean;
  detokenize(tokens: Uint32Array): string;
}

interface Bindings {
  readonly AddonModel: new (
    file: string,
    options: { readonly addonExports: unknown; readonly vocabOnly: true; readonly checkTensors: false },
  ) => AddonModel;
  markLoaded(): boolean;
  setLogger(log: () => void): void;
  setLoggerLogLevel(level: number): void;
  loadBackends(folder?: string): void;
  /** Null or undefined if no backend is loaded. */
  getGpuType(): string | false | null | undefined;
  init(): Promise<void>;
}

const ATTRIBUTE = { unknown: 1, control: 8, userDefined: 16 } as const;

/** By the number that llama.cpp has for each. */
const TYPES = ['none', 'spm', 'bpe', 'wpm', 'ugm', 'rwkv', 'plamo2'] as const;

/** Fatal lines alone, and these go to a logger that drops them. */
const NO_LOG = 0;

/** Starting the backend takes about as long as loading a vocabulary, so each thread does it once. */
let opened: Promise<Bindings> | undefined;

/** Throws if the file cannot be loaded. */
export async function loadBareTokenizer(file: string): Promise<TokenizerModel> {
  const bindings = await (opened ??= open());
  const fileInfo = await readGgufFileInfo(file, { sourceType: 'filesystem' });
  const model = new bindings.AddonModel(file, { addonExports: bindings, vocabOnly: true, checkTensors: false });
  if (!(await model.init())) throw new Error('Failed to load model');
  const stringOf = (token: number): string | null => (token === -1 ? null : model.getTokenString(token));
  const present = (token: number): number | null => (token === -1 ? null : token);
  const bos = model.tokenBos();
  const has = (token: number, attribute: number): boolean => (model.getTokenAttributes(token) & attribute) !== 0;
  return {
    fileInfo,
    vocabularyType: TYPES[model.getVocabularyType()] ?? 'none',
    tokens: {
      bos: present(bos),
      bosString: stringOf(bos),
      eosString: stringOf(model.tokenEos()),
      eos: present(model.tokenEos()),
      sep: present(model.sepToken()),
      shouldPrependBosToken: bos !== -1 && model.shouldPrependBosToken(),
      shouldAppendEosToken: model.tokenEos() !== -1 && model.shouldAppendEosToken(),
    },
    tokenize: (text, special) => (text === '' ? new Uint32Array(0) : model.tokenize(text, special)),
    getTokenAttributes: (token) => ({
      control: has(token, ATTRIBUTE.control),
      userDefined: has(token, ATTRIBUTE.userDefined),
      unknown: has(token, ATTRIBUTE.unknown),
    }),
    isEogToken: (token) => token !== undefined && model.isEogToken(token),
    detokenize: (tokens) => model.detokenize(Uint32Array.from(tokens)),
    dispose: () => model.dispose(),
  };
}

/** @throws {LoadFailure} */
async function open(): Promise<Bindings> {
  checkServed();
  const found = findAddon(false);
  const bindings = found && (loadAddon(found.file) as Bindings | undefined);
  if (found === undefined || bindings === undefined)
    throw new LoadFailure('there is no llama.cpp for the CPU of this machine: run npm ci');
  bindings.markLoaded();
  bindings.setLogger(() => undefined);
  bindings.setLoggerLogLevel(NO_LOG);
  bindings.loadBackends();
  // The addon's variants for each kind of CPU lie beside it.
  if ((bindings.getGpuType() ?? undefined) === undefined) bindings.loadBackends(dirname(found.file));
  await bindings.init();
  return bindings;
}
