import * as sdk from 'ai-6';
import { createOpenAI } from '@ai-sdk/openai-6';
import { aiSteps } from './ai-sdk.mjs';

// The sidecar stores nothing: the provider must send whole items, not references to them.
export default (given) =>
  aiSteps(sdk, (id, apiKey) => createOpenAI({ baseURL: given.base, apiKey })(id), given, {
    providerOptions: { openai: { store: false } },
  });
