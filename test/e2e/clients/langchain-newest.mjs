import { ChatOpenAI } from '@langchain/openai';
import { langchainSteps } from './langchain.mjs';

export default (given) => langchainSteps(ChatOpenAI, given);
