import * as sdk from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { aiSteps } from './ai-sdk.mjs';

// The sidecar stores nothing: the provider must send whole items, not references to them.
export default (given) =>
  aiSteps(sdk, (id, apiKey) => createOpenAI({ baseURL: given.base, apiKey })(id), given, {
    providerOptions: { openai: { store: false } },
  });
