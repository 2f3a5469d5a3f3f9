import assert from 'node:assert/strict';
import * as sdk from 'ai-6';
import { createOpenRouter } from '@openrouter/ai-sdk-provider-2';
import { aiSteps } from './ai-sdk.mjs';

export default (given) =>
  aiSteps(
    sdk,
    (id, apiKey) => createOpenRouter({ baseURL: given.base, apiKey, compatibility: 'strict' }).chat(id),
    given,
    { reads: ({ providerMetadata }) => assert.equal(typeof providerMetadata.openrouter.usage.cost, 'number') },
  );
