/**
 * Names of accounts, keys and models that come from another machine. ASCII without spaces, so that names that look
 * alike are equal: no homoglyphs, no composed and decomposed letters, and nothing that header parsing could trim. No
 * comma, with which a proxy joins two headers.
 */

/** An account or a key's id. */
export const NAME = '^[A-Za-z0-9][A-Za-z0-9._:@/+=~|-]{0,255}$';

/** A model's id, as requests name it (docs/contract.md#chat-completion-request). */
export const MODEL_ID = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$';

/** Models that one caller may be entitled to by name. */
export const MAX_MODELS = 256;
