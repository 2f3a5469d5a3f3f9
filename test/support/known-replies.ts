/** Replies whose tokens are known before: what is computed and picked for each costs what any other token costs. */
import { engineAddon, type AddonPicker, type EngineAddon } from '../../engine/llama/addon.js';

type MakePicker = EngineAddon['RaPicker'];

/**
 * Replies with one of these seeds get these tokens, as long as there are some, in this process. A job's reply i has its seed + i.
 * Returns what ends it. Call it once node-llama-cpp's addon is loaded.
 */
export function replyBySeed(texts: ReadonlyMap<number, readonly number[]>): () => void {
  const addon = engineAddon() as { RaPicker: MakePicker };
  const Own = addon.RaPicker;
  class Known extends Own {
    constructor(...given: ConstructorParameters<MakePicker>) {
      super(...given);
      const text = texts.get(given[1]);
      if (text) (this as AddonPicker).follow(Int32Array.from(text));
    }
  }
  addon.RaPicker = Known;
  return () => (addon.RaPicker = Own);
}
