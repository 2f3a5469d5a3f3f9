import Anthropic from '@anthropic-ai/sdk';
import { anthropicSteps } from './anthropic.mjs';

export default (given) => anthropicSteps(Anthropic, given, 'authToken');
