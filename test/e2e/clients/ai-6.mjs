import * as sdk from 'ai-6';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible-6';
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
