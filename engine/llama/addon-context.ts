/** The addon's objects, as far as they are used here. */

/** The addon's context, as far as it is used here (node-llama-cpp's bindings/AddonTypes.d.ts, not exported). */
export interface AddonContext {
  initBatch(size: number): void;
  /** Returns the batch's logit indexes of the tokens that `logitIndexes` names. */
  addToBatch(sequence: number, firstPosition: number, tokens: Uint32Array, logitIndexes: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  disposeSequence(sequence: number): void;
  removeTokenCellsFromSequence(sequence: number, from: number, to: number): boolean;
  /** The first position that every layer still has; -1: the sequence is empty. */
  getSequenceKvCacheMinPosition(sequence: number): number;
  /** The last position that every layer has; -1: the sequence is empty. */
  getSequenceKvCacheMaxPosition(sequence: number): number;
  /** Copies on llama.cpp's next decode, before it computes. Resolves with the last position copied, 0 also for none. */
  copySequenceStateFromOtherSequence(target: number, source: number): Promise<number>;
  setThreads(threads: number): void;
  /** Resolves with whether the sequence now ends at `lastPosition`. Rejects when the checkpoint was disposed. */
  restoreCheckpoint(checkpoint: AddonCheckpoint, lastPosition: number, sequence: number): Promise<boolean>;
  /** Writes all that the sequence holds, and these tokens. Resolves with the bytes written. Not during a decode. */
  saveSequenceStateToFile(path: string, sequence: number, tokens: Uint32Array): Promise<number>;
  /** The way back. `most`: tokens that the file may have, at least 1. Resolves with them. */
  loadSequenceStateFromFile(path: string, sequence: number, most: number): Promise<Uint32Array>;
}

/** A copy of what llama.cpp cannot truncate of a sequence's state (`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`), in host memory. */
export interface AddonCheckpoint {
  /** Copies the state of `sequence`. Not during a decode. */
  init(context: AddonContext, sequence: number): Promise<void>;
  /** Frees the copy. */
  dispose(): void;
  /** Bytes. */
  readonly size: number;
  /** The first position that every layer had; of a recurrent state the last one. */
  readonly minPos: number;
  /** The last position that it is of; -1: nothing. */
  readonly maxPos: number;
}
