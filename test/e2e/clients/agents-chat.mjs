import { agentSteps } from './agents.mjs';

export default (given) => agentSteps('chat', given);
