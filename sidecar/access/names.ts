/**
 * Names of accounts, keys and models that come from another machine. ASCII and no space, so that two that look alike are
 * alike: no homoglyphs, no composed and decomposed letters, nothing that a header's way could trim. No comma, which is how
 * a proxy joins two headers into one.
 */

/** An account or a key's id. */
export const NAME = '^[A-Za-z0-9][A-Za-z0-9._:@/+=~|-]{0,255}$';

/** A model's id, as requests name it (docs/contract.md#chat-completion-request). */
export const MODEL_ID = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$';

/** Models that one caller may be entitled to by name. */
export const MAX_MODELS = 256;
