import { agentSteps } from './agents.mjs';

export default (given) => agentSteps('responses', given);
