/** A thread of the prompt host's pool. */
import { getEnvironmentData } from 'node:worker_threads';
import type { HostSetup } from './messages.js';
import { loadItemWork } from './item-work.js';

export default await loadItemWork(getEnvironmentData('setup') as HostSetup);
