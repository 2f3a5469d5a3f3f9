import { AFTER_SALE_INTENTS } from './after-sale-intents.js';
import { ENQUIRY_INTENTS } from './enquiry-intents.js';
import type { Intent } from './intent.js';

/** All of them, in the order in which the corpus draws from them. */
export const INTENTS: readonly Intent[] = [...AFTER_SALE_INTENTS, ...ENQUIRY_INTENTS];
