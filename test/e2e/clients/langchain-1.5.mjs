import { ChatOpenAI } from '@langchain/openai-1.5';
import { langchainSteps } from './langchain.mjs';

export default (given) => langchainSteps(ChatOpenAI, given);
