import Anthropic from '@anthropic-ai/sdk-0';
import { anthropicSteps } from './anthropic.mjs';

export default (given) => anthropicSteps(Anthropic, given);
