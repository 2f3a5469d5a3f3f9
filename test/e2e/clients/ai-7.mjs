import * as sdk from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { aiSteps } from './ai-sdk.mjs';

export default (given) =>
  aiSteps(
    sdk,
    (id, apiKey) =>
      createOpenAICompatible({
        name: 'ra',
        baseURL: given.base,
        apiKey,
        includeUsage: true,
        supportsStructuredOutputs: true,
      })(id),
    given,
  );
