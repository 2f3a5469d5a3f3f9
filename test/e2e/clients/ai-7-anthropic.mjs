import * as sdk from 'ai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { aiSteps } from './ai-sdk.mjs';

export default (given) => aiSteps(sdk, (id, apiKey) => createAnthropic({ baseURL: given.base, apiKey })(id), given);
